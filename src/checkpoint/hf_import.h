/* A checkpoint from weights on disk, for a run to begin with. */
#ifndef REGULON_CHECKPOINT_HF_IMPORT_H
#define REGULON_CHECKPOINT_HF_IMPORT_H
#include "checkpoint/weights.h"

/* Writes the folder: a checkpoint of step 0 and run "imported", saved by dp ranks x 1, whose
 * masters are the weights and whose moments are zero (holes in the files), and used.yaml, which is
 * c. Every rank writes one shard, through buffers of 16 MB. Written as folder.tmp, fsynced,
 * renamed. NULL, or what failed, the same on all ranks, with nothing left behind; the caller frees
 * it. Collective over world, a grid of ranks x 1. */
char *hf_import(struct weights *w, const struct grid *g, const struct config *c,
                const char *folder);
#endif
