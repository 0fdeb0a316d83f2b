/* The safetensors format: 8 bytes of header length (little endian), a JSON header {name: {dtype,
 * shape, data_offsets}, "__metadata__": {...}}, then the data. Read to the letter of the format. */
#ifndef REGULON_CHECKPOINT_SAFETENSORS_H
#define REGULON_CHECKPOINT_SAFETENSORS_H
#include <stddef.h>
#include <stdint.h>

enum { SAFETENSORS_DIMS = 8 };

struct safetensor {
    char *name;
    const char *dtype; /* "F32", "BF16", ... one of the format's names */
    int n_dims;
    int64_t dims[SAFETENSORS_DIMS];
    uint64_t first, bytes; /* place in the data */
    int64_t n;             /* elements */
};

struct safetensors {
    char *path;
    uint64_t data; /* where the data begin in the file */
    int n;
    struct safetensor *list; /* by place in the data */
};

/* The header alone: NULL and *out filled, or what is wrong with it (the caller frees it) and *out
 * empty. data_bytes is the size of what follows the header. Refused: over 100 MB, not starting with
 * '{', trailing text, duplicate keys, unknown dtypes, more than 8 dimensions, negative or
 * overflowing sizes, offsets that overlap, leave gaps or do not end at the end. */
char *safetensors_parse(const char *header, size_t header_bytes, uint64_t data_bytes,
                        struct safetensors *out);

/* Bytes of an element; 0 where the format does not know the name. */
int safetensors_dtype_bytes(const char *dtype);

void safetensors_clear(struct safetensors *f); /* frees what safetensors_parse filled */

/* Opens a file; die_user (65) on what safetensors_parse refuses or when it cannot be read. */
struct safetensors *safetensors_open(const char *path);
void safetensors_close(struct safetensors *f);
const struct safetensor *safetensors_find(const struct safetensors *f,
                                          const char *name); /* NULL: absent */

/* n elements from element `first` as FP32 (F32, F16, BF16) or int32 (I32); dies (74) on a read
 * error, die_user (65) on another dtype. */
void safetensors_read(const struct safetensors *f, const struct safetensor *t, int64_t first,
                      int64_t n, float *out);
void safetensors_read_int32(const struct safetensors *f, const struct safetensor *t, int32_t *out);

/* Writing: what a file of tensors list[n] begins with, *bytes long (name, dtype and dims set;
 * first, bytes and n are filled in); the caller frees it. safetensors_create makes a file that
 * holds this much, after which the caller writes each tensor's data in order: the file descriptor,
 * or -1 with errno. */
char *safetensors_header(struct safetensor *list, int n, size_t *bytes);
int safetensors_create(const char *path, struct safetensor *list, int n);
#endif
