/* What a checkpoint consists of, for looking at one without a model: its files as `checksums` lists
 * them, and what index.h5 says of it and of its tensors. Values are read from the shards alone. */
#ifndef REGULON_CHECKPOINT_CONTENTS_H
#define REGULON_CHECKPOINT_CONTENTS_H
#include "checkpoint/checksums.h"
#include "checkpoint/shard.h"

struct contents_tensor {
    struct param param; /* the whole tensor: name, n_dims, dims, rows, cols, n; first_row is 0 */
    unsigned kinds;     /* bit k: it is there as enum state_kind k */
};

struct contents {
    char *folder;
    struct checksum *files; /* [n_files] */
    int n_files;
    struct shard_header header; /* dp_rank and ep_rank are 0, counters.bad_steps is not known */
    int64_t bias_shape[2];      /* layers, experts */
    struct contents_tensor *tensors; /* [n_tensors] layers in the order of their numbers */
    int n_tensors;
};

/* The step folder that a path means: itself, or that of an index.h5 or a shard; NULL when it is
 * none of these. By names only; the caller frees it. */
char *contents_folder(const char *path);

/* Each fills its part and returns NULL or what is wrong (the caller frees it). contents_files takes
 * what contents_folder gave; contents_tensors comes after it, compares index.h5 with its hash
 * before HDF5 sees it, and asks that all shards of the grid are listed. One rank; contents_close in
 * any case. */
char *contents_files(struct contents *c, const char *folder);
char *contents_tensors(struct contents *c);
void contents_close(struct contents *c);
#endif
