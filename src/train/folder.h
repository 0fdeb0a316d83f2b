/* The run folder: used.yaml metrics.h5 status.json cache/ final_model/. */
#ifndef REGULON_TRAIN_FOLDER_H
#define REGULON_TRAIN_FOLDER_H
#include "config/config.h"

/* Makes the run folder if it is absent. Returns 1 when it holds a finished run of at least
 * num_train_steps, which a `fresh` start disregards. die_user (78) if there can be no such folder,
 * or if that run had another model, data or seed. Rank 0. */
int folder_has_finished(const struct config *c, int fresh);

/* Makes the folder ready, once deck and data are known to be good. Returns 1
 * when it holds checkpoints to go on from, whose run has the same model, data and seed (else
 * die_user, 78); *changes then names the other keys that differ and how, "" for none; otherwise 0,
 * and an earlier run's files are moved into previous-N/ (nothing is deleted). die_user (78) if that
 * fails. The caller frees *changes. Rank 0. */
int folder_begin(const struct config *c, int fresh, char **changes);

/* used.yaml: its text (the caller frees it), and writing it once the start is accepted; die_user
 * (78) if that fails. Rank 0. */
char *folder_used_text(const struct config *c);
void folder_write_used(const struct config *c, const char *text);

/* status.json, for scripts: the exit code, the last step, and what the watchdog saw (NULL:
 * nothing). Rank 0. */
void folder_write_status(const struct config *c, int code, int64_t step, const char *seen);
#endif
