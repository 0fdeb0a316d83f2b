/* When a run saves, and what it says of it. */
#ifndef REGULON_TRAIN_SAVING_H
#define REGULON_TRAIN_SAVING_H
#include "train/record.h"

/* Starts a save of the state after `step`; with checkpoint.async_save false also ends it. A save
 * that is still being written ends first, so that at most one is. Returns 1 when the run was asked
 * to leave meanwhile. Collective over world, like the functions below. */
int saving_start(struct run *r, struct record *record, int64_t step);

/* Takes a save a phase further: sums are what saver_vote's votes came to in the step's reduction.
 */
void saving_go_on(struct run *r, const double sums[SAVER_VOTES]);

/* Waits for the save under way, if there is one. */
void saving_end(struct run *r);

/* Returns 1 when the state after `step` is in a whole checkpoint, a save of it that was started
 * earlier included; 0: it could not be written. */
int saving_last(struct run *r, struct record *record, int64_t step);

/* 1 after checkpoint.max_failures saves in a row that failed: the run must not go on. */
int saving_is_hopeless(const struct run *r);
#endif
