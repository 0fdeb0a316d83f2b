/* The end of a sanity run: did this machine train as it should? */
#ifndef REGULON_TRAIN_VERDICT_H
#define REGULON_TRAIN_VERDICT_H
#include "train/run.h"

/* Prints grid, backend, tokens exchanged per pair of ranks, whether the loss fell and whether all
 * experts differ, on rank 0. Returns EXIT_FINISHED or, when something is wrong, EXIT_INTERNAL.
 * Collective over world. */
int verdict_print(struct run *r, double first_loss, double last_loss);
#endif
