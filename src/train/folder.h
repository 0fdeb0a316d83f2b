/* The run folder: used.yaml metrics.h5 status.json cache/ final_model/. */
#ifndef REGULON_TRAIN_FOLDER_H
#define REGULON_TRAIN_FOLDER_H
#include "config/config.h"

/* Makes the run folder if it is absent. Returns 1 when it holds a finished run of at least
 * num_train_steps, which a `fresh` start disregards. die_user (78) if there can be no such folder,
 * or if that run had another model, data or seed. Rank 0. */
int folder_has_finished(const struct config *c, int fresh);

/* Makes the folder ready for a new run, once its deck and data are known to be good: an earlier
 * run's files are moved into previous-N/ (nothing is deleted), used.yaml is written. die_user (78)
 * if that fails. Rank 0. */
void folder_begin(const struct config *c);

/* status.json: the exit code and the last step, for scripts. Rank 0. */
void folder_write_status(const struct config *c, int code, int64_t step);
#endif
