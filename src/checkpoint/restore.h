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

/* Loads the weights and the selection bias, nothing else, from such a folder, which rank 0 names.
 * die_user (65) when it is damaged or of another model. Collective over world, which is
 * MPI_COMM_WORLD. */
void checkpoint_load_weights(struct model *m, const char *folder);
#endif
