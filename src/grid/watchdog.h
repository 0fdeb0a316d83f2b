/* Ends a job in which a rank has died, stopped, hangs, or left before the others, and names it. A
 * thread on each rank, with a TCP connection to rank 0 and a beat a second; it makes no MPI and no
 * HDF5 call. Beats carry what the main thread does: its mark. */
#ifndef REGULON_GRID_WATCHDOG_H
#define REGULON_GRID_WATCHDOG_H
#include "grid/grid.h"
#include <stdint.h>

/* What a run does at large, and within that. */
enum watchdog_part {
    WATCHDOG_LOADING,
    WATCHDOG_STEP,
    WATCHDOG_VALIDATION,
    WATCHDOG_GENERATION,
    WATCHDOG_CHECKPOINT,
    WATCHDOG_FINAL_MODEL,
    WATCHDOG_CLOSING,
    WATCHDOG_LEAVING /* on the way to MPI_Finalize, by itself or by a user's mistake */
};
enum watchdog_phase {
    WATCHDOG_NONE,
    WATCHDOG_DATA,
    WATCHDOG_FORWARD,
    WATCHDOG_BACKWARD,
    WATCHDOG_REDUCE,
    WATCHDOG_OPTIMIZER,
    WATCHDOG_RECORD
};

/* What to do on rank 0 before a job ends, in a second: `seen` says why, `step` is the last one
 * begun. */
typedef void watchdog_note(void *context, int code, int64_t step, const char *seen);

/* Starts the watch, in part LOADING, until watchdog_close; timeout_s 0: there is none. From then on
 * - a rank whose process ends without a word is named at once;
 * - one that gives no sign for timeout_s and two beats, or has left for so long while others
 *   work, is named;
 * - of the ranks whose mark does not move for timeout_s (ten times that in other parts than STEP,
 *   VALIDATION and GENERATION, and in the first STEP) the one furthest behind is named.
 * Rank 0 prints host, step, phase and layer in a line on stderr, and every rank ends with
 * _exit(70); one that gives no sign is killed by a rank on its host. When rank 0 itself is lost,
 * the first other rank of each host prints what it saw. The end of one rank by die() ends all with
 * its code, one by abort(), as of a failed assertion, with 70. Time in which the whole process
 * stood still, as in a suspended job, does not count.
 *
 * note may be NULL; it and its context must live until watchdog_close. Collective over g's world,
 * once at a time. die_user (78) when a rank cannot reach rank 0. */
void watchdog_open(const struct grid *g, int64_t timeout_s, watchdog_note *note, void *context);

/* Ends the watch without an alarm. Collective over the same ranks; does nothing where there is no
 * watch. */
void watchdog_close(void);

/* The marks, set by the main thread; every rank sets the same ones in the same order, since the
 * watchdog counts them to find who is behind. A few stores and a look at the clock; nothing where
 * there is no watch. watchdog_part begins a part, of step `step` (-1: as before), without a
 * phase; layer: -1 for none. watchdog_exchange: the rank waits (1) for the others of its
 * expert-parallel group, within a phase, or no longer (0). A profiler sees them too, watch or none:
 * ranges.h. On a GPU they say what the host has enqueued. */
void watchdog_part(enum watchdog_part part, int64_t step);
void watchdog_phase(enum watchdog_phase phase, int layer);
void watchdog_exchange(int waits);

/* The rank waits (1) for its GPU to do what was enqueued, or no longer (0). Not a mark: a rank may
 * wait more often than others. */
void watchdog_gpu(int waits);

/* Work goes on within the mark, on this rank alone: it counts as if the mark were new, but not as a
 * mark. */
void watchdog_progress(void);
#endif
