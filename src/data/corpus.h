/* A packed corpus: an HDF5 file with /tokens (contiguous uint8, uint16 or uint32) and
 * /records/{name,offset, length,source}, readable by h5py as it stands; here mapped into memory.
 * docs/formats.md is the reference. */
#ifndef REGULON_DATA_CORPUS_H
#define REGULON_DATA_CORPUS_H
#include <stddef.h>
#include <stdint.h>

struct corpus {
    char *path;
    int token_bytes;    /* 1, 2 or 4 */
    uint32_t max_token; /* largest token that occurs */
    int alphabet;       /* enum alphabet_kind */
    int64_t n_tokens;
    int64_t n_records;
    int64_t *offset, *length; /* [n_records], in tokens */
    int eos;            /* what separates documents in ready token files; TOKEN_EOS for text */
    const void *tokens; /* the mapped file; token i at tokens + i * token_bytes */
    void *map;
    size_t map_bytes;
};

/* Opens a packed corpus. die_user (65) if it is not one, is damaged, or is newer than this program.
 */
struct corpus *corpus_open(const char *path);
void corpus_close(struct corpus *c);

/* Name of record i; the caller frees it. Reads the file: not while another thread is in HDF5. */
char *corpus_record_name(const struct corpus *c, int64_t i);

/* n tokens of record i from position `start`, widened: 0 <= start, start + n <= length[i]. */
void corpus_read(const struct corpus *c, int64_t record, int64_t start, int64_t n, uint32_t *out);
#endif
