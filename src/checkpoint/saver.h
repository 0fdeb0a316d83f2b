/* The life of a save. saver_begin copies the state and starts the writing, by the I/O thread, of
 * step_N.OWNER.ATTEMPT.tmp/; training goes on; the ranks' votes ride in the steps' reductions; when
 * all shards are down rank 0 writes index.h5 and checksums, renames the folder to step_N and
 * removes old ones. A folder without suffix is whole. */
#ifndef REGULON_CHECKPOINT_SAVER_H
#define REGULON_CHECKPOINT_SAVER_H
#include "checkpoint/lock.h"
#include "checkpoint/state.h"

enum { SAVER_VOTES = 4 };

struct saver;

/* folder: the run folder; keep and every: see checkpoint_prune. Touches the host memory that the
 * copies need. Collective over world; the caller frees it when it is idle. */
struct saver *saver_new(const struct optimizer *o, const char *folder, const char *run_id,
                        int64_t keep, int64_t every);
void saver_free(struct saver *s);

/* A save is given up, and its files left to the new owner, when `lock` (rank 0's, borrowed; NULL on
 * the others) is not ours any more. Before the first save. Collective over world. */
void saver_guard(struct saver *s, struct lock *lock);

/* Starts to save. The saver must be idle. Local, but every rank calls it at the same step. */
void saver_begin(struct saver *s, struct counters counters);

/* This rank's votes, to be summed over the world, and what follows from the sums: the same on every
 * rank. saver_count is collective over world. Returns 1 when a save has just ended well, -1 when
 * one has failed (said on the rank that failed), else 0. */
void saver_vote(const struct saver *s, double votes[SAVER_VOTES]);
int saver_count(struct saver *s, const double sums[SAVER_VOTES]);

/* Waits until the saver is idle. Collective over world. Returns as saver_count. */
int saver_drain(struct saver *s);

/* Of the last save: its step (-1: there was none) and the seconds that training stood still; once
 * it has ended well also, on rank 0 the bytes of all ranks, and the seconds from begin to rename.
 */
struct saver_figures {
    int64_t step;
    double stall_s, total_s, bytes;
};
struct saver_figures saver_figures(const struct saver *s);
#endif
