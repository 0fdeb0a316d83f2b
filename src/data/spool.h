/* One parsed file on its way into a corpus: a temporary file with its tokens, the table of its
 * records and what was met in it. Any rank writes it, rank 0 reads it. */
#ifndef REGULON_DATA_SPOOL_H
#define REGULON_DATA_SPOOL_H
#include "data/records.h"
#include <stdint.h>

/* The fixed end of the file. */
struct spool_summary {
    int64_t n_tokens, n_records, names_bytes;
    int64_t bytes, modified; /* of the source as it lies; ns since 1970 */
    char checksum[40];
    uint32_t max_token;
    struct pack_report report;
};

struct spool {
    struct spool_summary summary;
    const unsigned char *tokens;
    const int64_t *length; /* [n_records] */
    const char *names;     /* n_records strings, each with its NUL */
    void *map;
    size_t map_bytes;
};

/* What source files are, as pack options say. NULL if all went well, else what is wrong with the
 * file, for the caller to free, and *code. In both cases `spool` is there, except that
 * die_io ends the program when it cannot be created. */
struct pack_options;
char *spool_make(const char *path, const char *spool, const struct pack_options *options,
                 int *code);

/* Maps a spool into memory; die_io if that cannot be done. */
struct spool *spool_open(const char *path);
void spool_close(struct spool *s);
#endif
