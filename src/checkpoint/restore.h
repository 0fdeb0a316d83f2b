/* From a checkpoint back into a model, on any grid. */
#ifndef REGULON_CHECKPOINT_RESTORE_H
#define REGULON_CHECKPOINT_RESTORE_H
#include "checkpoint/shard.h"

/* Loads the newest whole and sound checkpoint of a run folder into the model and the optimiser,
 * each rank what it holds; *header gets what it says of itself (dp_size and ep_size: of the grid
 * that saved it). The ranks share the work of hashing; a damaged one is named (log_warn) and the
 * one before it is taken. Returns 1, or 0 when there is none. Collective over world. */
int checkpoint_restore(struct optimizer *o, const char *run, struct shard_header *header);

/* The folder that holds the weights of `path`: itself, where it is a step folder or a Hugging Face
 * folder; of a run folder its newest checkpoint, which has the FP32 masters, or its final_model
 * (whose weights are of the compute type) where that is of a later step or there is no checkpoint.
 * NULL when there are none. The caller frees it. One rank. */
char *checkpoint_find_weights(const char *path);

/* The file that says what model they are: used.yaml, in `path` or, of a step folder or the
 * final_model of a run, in the run folder above it; of another Hugging Face folder its config.json.
 * NULL: there is none. The caller frees it. One rank. */
char *checkpoint_find_deck(const char *path, const char *weights);

/* Rank 0's name of a file or folder on every rank; the caller frees it. Collective over world. */
char *checkpoint_share_name(const struct grid *g, const char *name);

/* 1 when the files of the step folder are undamaged and it has the tensors of the model in c, no
 * more and no fewer; else what is wrong is said (log_warn). The ranks share the work of hashing.
 * Collective over world. */
int checkpoint_is_sound(const struct grid *g, const char *folder, const struct config *c);
#endif
