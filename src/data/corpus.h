/* A packed corpus: an HDF5 file with /tokens (contiguous uint8, uint16 or uint32) and
 * /records/{name,offset, length,source}, readable by h5py as it stands; here mapped into memory.
 * docs/formats.md is the reference. */
#ifndef REGULON_DATA_CORPUS_H
#define REGULON_DATA_CORPUS_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    CORPUS_VERSION = 1,
    CORPUS_MAX_SOURCES = 4000 /* they are attributes, which end at 64 KiB */
};

/* A file that a corpus was made from. */
struct corpus_source {
    char *path;
    int64_t bytes, modified; /* of the file as it lies; modified in ns since 1970 */
    char checksum[33];       /* XXH3-128, as xxh128sum prints it */
};

struct corpus {
    char *path;
    int token_bytes;    /* 1, 2 or 4 */
    uint32_t max_token; /* largest token that occurs */
    int alphabet;       /* enum alphabet_kind */
    int64_t n_tokens;
    int64_t n_records;
    int64_t *offset, *length; /* [n_records], in tokens */
    int ready; /* tokens of some tokeniser, not the bytes of text: no letters, no BOS */
    int eos;   /* what separates documents in ready token files; TOKEN_EOS for text */
    int name_bytes;
    const char *names; /* [n_records, name_bytes] in the mapped file, padded with NUL */
    const void
        *tokens; /* the mapped file; token i at tokens + i * token_bytes, aligned to it or not */
    void *map;
    size_t map_bytes;
};

/* Opens a packed corpus. die_user (65) if it is not one, is damaged, or is newer than this program.
 */
struct corpus *corpus_open(const char *path);
void corpus_close(struct corpus *c);

/* Name of record i; the caller frees it. From the mapped file: any thread, at any time. */
char *corpus_record_name(const struct corpus *c, int64_t i);

/* n tokens of record i from position `start`, widened: 0 <= start, start + n <= length[i]. */
void corpus_read(const struct corpus *c, int64_t record, int64_t start, int64_t n, uint32_t *out);

/* The files a corpus was made from: *n of them, freed by corpus_free_sources. die_user (65) as
 * corpus_open. */
struct corpus_source *corpus_read_sources(const char *path, int64_t *n);
void corpus_free_sources(struct corpus_source *s, int64_t n);

/* What `regulon info` says of a corpus. */
void corpus_info(const char *path, FILE *out);

/* All of a corpus but the tokens' values. Everything is borrowed. */
struct corpus_contents {
    int token_bytes, ready, alphabet, eos;
    uint32_t max_token;
    int shuffled;
    uint64_t seed; /* of the shuffle */
    int64_t n_tokens, n_records;
    const int64_t *offset, *length; /* [n_records] */
    const uint32_t *source;         /* [n_records] index into sources */
    const char *names;              /* [n_records, name_bytes] */
    int name_bytes;
    const struct corpus_source *sources;
    int64_t n_sources;
};

/* Creates `path`, closed again; the caller writes n_tokens > 0 tokens at the returned offset in the
 * file. */
int64_t corpus_create(const char *path, const struct corpus_contents *c);
#endif
