#include "config.h"
#include "grid/judge.h"
#include <stdio.h>

static const struct part {
    const char *name;
    int numbered; /* the step follows */
    int patience; /* times the limit */
} parts[] = {
    [WATCHDOG_LOADING] = {"loading", 0, 10},
    [WATCHDOG_STEP] = {"step", 1, 1},
    [WATCHDOG_VALIDATION] = {"validation after step", 1, 1},
    [WATCHDOG_GENERATION] = {"generation", 0, 1},
    [WATCHDOG_CHECKPOINT] = {"the checkpoint of step", 1, 10},
    [WATCHDOG_FINAL_MODEL] = {"the final model", 0, 10},
    [WATCHDOG_CLOSING] = {"closing after step", 1, 10},
    [WATCHDOG_LEAVING] = {"leaving in step", 1, 1},
};
static const char *const phases[] = {
    [WATCHDOG_NONE] = "",           [WATCHDOG_DATA] = "data",
    [WATCHDOG_FORWARD] = "forward", [WATCHDOG_BACKWARD] = "backward",
    [WATCHDOG_REDUCE] = "reduce",   [WATCHDOG_OPTIMIZER] = "optimizer",
    [WATCHDOG_RECORD] = "record",
};

const char *judge_part_name(enum watchdog_part part) {
    return parts[part].name;
}

const char *judge_phase_name(enum watchdog_phase phase) {
    return phases[phase];
}

static int64_t limit_of(const struct mark *m, int64_t limit) {
    return limit * (m->first && m->part == WATCHDOG_STEP ? 10 : parts[m->part].patience);
}

/* Time for which the mark has not moved, as far as was heard. */
static int64_t age(const struct watched *w) {
    return w->heard - w->mark.time;
}

struct verdict judge_presence(const struct watched *w, int n, int64_t now, int64_t limit) {
    int working = 0;
    for (int i = 0; i < n; i++) {
        if (w[i].presence == GONE) return (struct verdict){IS_GONE, i};
        if (w[i].code < 0) working++;
    }
    for (int i = 0; i < n; i++) {
        if (w[i].presence == PRESENT && now - w[i].heard > limit + 2 * JUDGE_BEAT)
            return (struct verdict){IS_SILENT, i};
        if (working && w[i].code >= 0 && now - w[i].mark.time > limit)
            return (struct verdict){HAS_LEFT, i};
    }
    return (struct verdict){FINE, 0};
}

struct verdict judge_progress(const struct watched *w, int n, int64_t now, int64_t limit) {
    int oldest = -1;
    for (int i = 0; i < n; i++) {
        if (w[i].presence == ENDED) continue;
        int64_t behind = oldest < 0 ? -1 : w[i].mark.order - w[oldest].mark.order;
        if (behind < 0 || (behind == 0 && w[i].mark.time < w[oldest].mark.time)) oldest = i;
    }
    if (oldest < 0) return (struct verdict){FINE, 0};
    for (int i = 0; i < n; i++)
        if (w[i].presence != ENDED && w[i].mark.order == w[oldest].mark.order &&
            age(&w[i]) <= limit_of(&w[i].mark, limit))
            return (struct verdict){FINE, 0};
    for (int i = 0; i < n; i++) {
        if (w[i].code >= 0 && w[oldest].code < 0) return (struct verdict){HAS_LEFT, i};
        if (w[i].presence == PRESENT && now - w[i].heard > limit / 2)
            return (struct verdict){IS_SILENT, i};
    }
    return (struct verdict){IS_STUCK, oldest};
}

static void describe_mark(char *text, size_t size, const struct mark *m) {
    char step[32] = "", layer[32] = "";
    if (parts[m->part].numbered) snprintf(step, sizeof step, " %lld", (long long)m->step);
    if (m->layer >= 0) snprintf(layer, sizeof layer, ", layer %d", m->layer);
    /* what the host has enqueued last says only that the GPU is there or before it */
    const char *before = m->phase == WATCHDOG_NONE ? "" : ", ",
               *after = m->waits == WAITS_FOR_RANKS ? ", exchange" : "";
    if (m->waits == WAITS_FOR_GPU)
        before = m->phase == WATCHDOG_NONE ? ", waiting for its GPU"
                                           : ", waiting for its GPU with work enqueued up to ";
    snprintf(text, size, "%s%s%s%s%s%s", parts[m->part].name, step, before, phases[m->phase], layer,
             after);
}

void judge_text(char *text, size_t size, const struct watched *w, enum cause cause, int64_t now) {
    char where[200];
    long long silent = (now - w->heard) / 1000000000, still = (now - w->mark.time) / 1000000000;
    int n = snprintf(text, size, "rank %d (%s, pid %d) ", w->rank, w->host, w->pid);
    describe_mark(where, sizeof where, &w->mark);
    text += n, size -= (size_t)n;
    switch (cause) {
    case IS_GONE:
        snprintf(text, size, "has died; last heard of in %s", where);
        break;
    case HAS_ABORTED:
        snprintf(text, size, "has aborted in %s", where);
        break;
    case HAS_LEFT:
        snprintf(text, size, "left with code %d in step %lld, the others did not", w->code,
                 (long long)w->mark.step);
        break;
    case IS_SILENT:
        snprintf(text, size, "gives no sign for %lld s, stopped or out of reach in %s", silent,
                 where);
        break;
    default:
        snprintf(text, size, "stands still for %lld s in %s", still, where);
    }
}
