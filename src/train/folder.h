/* The run folder: used.yaml metrics.h5 status.json cache/ final_model/. */
#ifndef REGULON_TRAIN_FOLDER_H
#define REGULON_TRAIN_FOLDER_H
#include "config/config.h"

/* Makes the run folder ready for a new run on rank 0: made if absent, an earlier run's files moved
 * into previous-N/ (nothing is deleted), used.yaml written. Returns 1 when it holds a finished run
 * of at least num_train_steps, which is left alone unless `fresh`. die_user (78) if it cannot be
 * written. */
int folder_prepare(const struct config *c, int fresh);

/* status.json: the exit code and the last step, for scripts. Rank 0. */
void folder_write_status(const struct config *c, int code, int64_t step);
#endif
