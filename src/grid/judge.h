/* What the watchdog concludes from what it has heard of the ranks. Only grid/ includes this. */
#ifndef REGULON_GRID_JUDGE_H
#define REGULON_GRID_JUDGE_H
#include "grid/watchdog.h"
#include <stddef.h>

/* For what a rank waits within its mark. */
enum waits { WAITS_FOR_NOTHING, WAITS_FOR_RANKS, WAITS_FOR_GPU };

/* What a rank does. `order` counts parts (upper half) and marks within the part (lower half): of
 * two ranks the one with the smaller is behind. */
struct mark {
    int64_t step, order;
    int64_t time; /* when it was set, ns on the clock of whom holds it; in a message: its age */
    int32_t part, phase, layer, waits; /* of the enums; -1: no layer; enum waits */
    int32_t first;                     /* the first STEP has not ended */
};

enum presence { PRESENT, GONE, ENDED }; /* gone: without a word; ended: with one */

struct watched {
    int rank, pid;
    char host[64];
    enum presence presence;
    int code;      /* with which it has begun to leave; -1: it has not */
    int64_t heard; /* when its last sign came, ns */
    struct mark mark;
};

enum cause { FINE, IS_GONE, HAS_ABORTED, HAS_LEFT, IS_SILENT, IS_STUCK };
struct verdict {
    enum cause cause;
    int i; /* the one to be named, a place in the list */
};

/* A process that is gone, or gives no sign for limit ns and two beats, or has left so long ago
 * while another has not. */
#define JUDGE_BEAT INT64_C(1000000000) /* ns between two signs of a rank */
struct verdict judge_presence(const struct watched *w, int n, int64_t now, int64_t limit);

/* All ranks that are furthest behind stand still: names the one that has left or gives no sign,
 * else the one with the oldest mark. (A rank waits in a collective for one that is behind it, or
 * for one with the same mark that works on, for which it may wait.) w holds all ranks. */
struct verdict judge_progress(const struct watched *w, int n, int64_t now, int64_t limit);

/* What they are called, also in a profile: "step", "forward". */
const char *judge_part_name(enum watchdog_part part);
const char *judge_phase_name(enum watchdog_phase phase);

/* "rank 1 (node7, pid 123) is stuck for 301 s in step 12, forward, layer 3, exchange" */
void judge_text(char *text, size_t size, const struct watched *w, enum cause cause, int64_t now);
#endif
