/* The step folders of a run: RUN/step_000001200, whole by its name;
 * RUN/step_000001200.OWNER.ATTEMPT.tmp, unfinished. */
#ifndef REGULON_CHECKPOINT_FOLDER_H
#define REGULON_CHECKPOINT_FOLDER_H
#include <stdint.h>

char *checkpoint_folder(const char *run, int64_t step); /* the caller frees it */

/* The steps that have a whole folder, newest first; the caller frees the list. One rank. */
int64_t *checkpoint_list(const char *run, int *n);

/* Removes all but the newest `keep` (0: removes none) and those of steps that `every` divides (0:
 * no others). What cannot be removed stays. One rank. */
void checkpoint_prune(const char *run, int64_t keep, int64_t every);

/* Renames the whole folders of steps above `step` to step_N.damaged: they could not be loaded, must
 * not count as kept, and the run will save those steps again. Those of earlier times are removed.
 * One rank. */
void checkpoint_set_aside(const char *run, int64_t step);

/* Removes unfinished folders of earlier starts. One rank. */
void checkpoint_remove_unfinished(const char *run);
#endif
