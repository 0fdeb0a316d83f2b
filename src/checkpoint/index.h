/* index.h5: every tensor of a checkpoint whole, under /master, /exp_avg and /exp_avg_sq by its
 * transformers name, as a virtual dataset over the shards, for h5py and other readers. Regulon
 * itself never loads through it: rows of a missing shard would read as NaN. */
#ifndef REGULON_CHECKPOINT_INDEX_H
#define REGULON_CHECKPOINT_INDEX_H
#include "checkpoint/shard.h"
#include "model/params.h"

/* Writes folder/index.h5 for the grid of h. NULL, or why it failed, freed by the caller. In the I/O
 * thread of rank 0. */
char *index_write(const char *folder, const struct shard_header *h, const struct config *c,
                  const struct shape *s);
#endif
