/* Which micro-batch a rank works on, and the thread that makes them ahead. Micro-batch m of step s
 * is a pure function of (seed, s, m): g = s * M + m, epoch = g div C, chunk = perm(key(seed,
 * epoch), g mod C), where the stream is cut into C chunks of token_micro_batch_size tokens. Nothing
 * of the loader needs saving. In a mixture mixture.h says which source g comes from, and its number
 * among the draws of that source takes g's place. */
#ifndef REGULON_DATA_LOADER_H
#define REGULON_DATA_LOADER_H
#include "config/config.h"
#include "data/batch.h"
#include "data/stream.h"

struct loader;

/* Tokens of a micro-batch: token_micro_batch_size, or micro_batch_size (1 if neither is given)
 * times max_seq_length. */
int loader_capacity(const struct config *c);

/* The training order: n_sources streams mixed by weight (weights[n_sources]); M = n_ranks *
 * grad_acc_steps micro-batches a step. Streams are borrowed; none may be empty. Rank r of n_ranks
 * gets micro-batches m with m mod n_ranks == r, micro-step m div n_ranks, from step `first_step`
 * on. Starts a thread that reads `read_ahead` micro-batches ahead; it makes no MPI and no HDF5 call
 * and takes no signals. */
struct loader *loader_open(const struct config *c, struct stream *const *streams,
                           const double *weights, int n_sources, int rank, int n_ranks,
                           int64_t first_step);

/* The next micro-batch of this rank, in order of step and micro-step; borrowed until the next call.
 */
const struct batch *loader_next(struct loader *l);
double loader_epoch(const struct loader *l,
                    int64_t step);   /* passes over the data before `step` (first source) */
void loader_close(struct loader *l); /* NULL is fine */

/* Validation in fixed order: the number of chunks of `capacity` tokens, and chunk i of them,
 * without a thread. The last one is padded; past the end a batch has no tokens. */
int64_t loader_chunks(const struct stream *s, int capacity);
void loader_fill_chunk(const struct stream *s, int64_t chunk, struct batch *b);
#endif
