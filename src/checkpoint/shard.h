/* One rank's file of a checkpoint: shard_dDDD_eEEE.h5, the pieces of state_to_save as contiguous
 * datasets /master/NAME, /exp_avg/NAME, /exp_avg_sq/NAME of [rows, cols], each with its first
 * global row. HDF5 lays the file out and closes it; then the data are written with pwrite, and the
 * whole file is hashed on the way, since HDF5's own write path neither hashes nor survives a full
 * disk. */
#ifndef REGULON_CHECKPOINT_SHARD_H
#define REGULON_CHECKPOINT_SHARD_H
#include "checkpoint/state.h"
#include "config/config.h"
#include "grid/grid.h"
#include <hdf5.h>

/* What every shard of a checkpoint says of it. */
struct shard_header {
    char run_id[33];
    int dp_size, ep_size, dp_rank, ep_rank;
    int64_t micro_batches; /* M of a step, over the grid */
    struct counters counters;
};

/* What a shard and index.h5 both say at their root: run, grid that saved, counters; /code and
 * /config. Of the whole checkpoint: neither the rank nor bad_steps. */
void shard_describe(hid_t file, const struct shard_header *h, const struct config *c);

/* Reads them back: 1, or 0 when one is missing. */
int shard_read_description(hid_t file, struct shard_header *h);

char *shard_name(int dp_rank, int ep_rank); /* "shard_d000_e000.h5"; the caller frees it */

/* Bytes: data that begin so in memory are written without passing through the page cache, where the
 * file system can. */
enum { SHARD_ALIGNMENT = 4096 };

/* Elements [first, first + n) of a piece into out; NULL, or what is wrong, freed by the caller. */
typedef char *shard_source(void *context, const struct piece *p, int64_t first, int64_t n,
                           float *out);

/* Writing, in slices, by the I/O thread. `pieces` and their data (host memory) are borrowed until
 * the end; bias[n_bias] is the router's selection bias, written by the shard of rank 0 (NULL
 * elsewhere). */
struct shard_writer;
struct shard_writer *shard_writer_new(const char *path, const struct shard_header *h,
                                      const struct config *c, const struct piece *pieces, int n,
                                      const float *bias, const int64_t bias_shape[2]);
/* Of pieces without data the masters come from `source`, a slice at a time, and moments are zero:
 * holes in the file. Before the first slice. */
void shard_writer_pull(struct shard_writer *w, shard_source *source, void *context);
int shard_writer_slice(struct shard_writer *w); /* 1: there is more; 0: done or failed */
/* After the last slice: NULL, or why it failed (borrowed); the file's XXH3-128 as xxh128sum prints
 * it; its size. */
const char *shard_writer_error(const struct shard_writer *w);
const char *shard_writer_hash(const struct shard_writer *w);
int64_t shard_writer_bytes(const struct shard_writer *w);
/* What `checksums` says of the datasets of all ranks, one behind the other, on rank 0 (the caller
 * frees them), else NULL. Collective over world. */
char *shard_gather_remarks(const struct grid *g, const struct shard_writer *w);
void shard_writer_free(struct shard_writer *w);

/* Reading. Each returns NULL or what is wrong, to be freed by the caller. */
char *shard_read_header(const char *path, struct shard_header *h);

/* Fills from one shard what of pieces[n], backend memory (host memory where be is NULL), it holds;
 * covered[n] counts the elements filled. bias[n_bias] (host memory) is filled if the shard has it;
 * it may be NULL. */
char *shard_read(struct backend *be, const char *path, struct piece *pieces, int n, size_t *covered,
                 float *bias, size_t n_bias);
#endif
