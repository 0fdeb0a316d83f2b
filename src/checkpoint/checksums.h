/* `checksums`: XXH3-128 of each whole file of a checkpoint, "HASH  NAME" a line as xxh128sum writes
 * and `xxhsum -c` reads. Behind them, as remarks, the XXH3-64 of each dataset of the shards and
 * where it lies, so that damage can be located without HDF5, which can crash on damaged metadata;
 * the last line covers the ones before it. */
#ifndef REGULON_CHECKPOINT_CHECKSUMS_H
#define REGULON_CHECKPOINT_CHECKSUMS_H
#include <stddef.h>
#include <stdint.h>

struct checksum {
    char name[64], hash[33];
};

/* Data of one dataset, in one stretch of a file. */
struct extent {
    const char *dataset; /* "/master/lm_head.weight" */
    const void *data;    /* where they come from; NULL: they lie nowhere, see shard_writer_pull */
    int piece;           /* number of the piece that they are */
    int64_t offset, bytes;
    uint64_t hash; /* XXH3-64 */
    int hole; /* zeros that were not written */
};

/* The remarks on a file's extents, for checksums_write; the caller frees them. */
char *checksums_remarks(const char *file, const struct extent *list, int n);

/* Writes folder/checksums (fsynced). 1, or 0 with errno. */
int checksums_write(const char *folder, const struct checksum *list, int n, const char *remarks);

/* Reads it: NULL and list[*n], freed by the caller, or what is wrong. */
char *checksums_read(const char *folder, struct checksum **list, int *n);

/* NULL if the file has this hash, else what is wrong: the file and, in a shard, the first dataset
 * that is damaged or "HDF5 metadata". */
char *checksums_verify(const char *folder, const struct checksum *c);

/* XXH3-128 of a file as 32 hexadecimal digits; 1, or 0 with errno. */
int checksums_of_file(const char *path, char hash[33]);
#endif
