/* How long a step would take: a model of its parts, from rates that were measured on one GPU and
 * from those of links. They follow one another, but for parallelism.shard full and engine.reduce:
 * what travels beside a pass, or AdamW, counts as far as it takes longer; that kernels share the
 * GPU with it does not. */
#ifndef REGULON_PLAN_TIME_H
#define REGULON_PLAN_TIME_H
#include "plan/figures.h"

/* What the ranks can do. */
struct plan_rates {
    double flops;   /* of a rank in forward and backward passes, by the FLOPs of shape.h */
    double memory;  /* bytes/s of a rank's memory */
    double link;    /* bytes/s that a rank sends to others of its node, at the same time as it gets
                       as many */
    double network; /* the same between nodes, of one rank while all of its node send */
};

/* An H200 with Mixtral's shape in BF16 and so many tokens a micro-batch, NVLink, a 400 Gbit/s
 * adapter for each GPU. */
struct plan_rates plan_rates_h200(int tokens, int low);

enum plan_phase {
    PLAN_PASSES,          /* forward and backward, layers made again included */
    PLAN_OPTIMIZER,       /* AdamW of this rank's share */
    PLAN_SENDS_TOKENS,    /* the exchange within the ep group */
    PLAN_SENDS_GRADIENTS, /* full: beside backward passes, with the weights that they gather;
                             engine.reduce: beside the last one */
    PLAN_SENDS_WEIGHTS,   /* full: beside forward passes; engine.reduce: beside AdamW */
    N_PLAN_PHASES
};
const char *plan_phase_name(enum plan_phase phase); /* "passes": one word, for JSON */

struct plan_time {
    double seconds[N_PLAN_PHASES], total;
    double tokens_per_s; /* of a rank */
    double efficiency;   /* of that without communication */
};

/* trained: parameters that this rank updates; reduce_beside as in struct plan_memory. */
struct plan_time plan_time(const struct plan *p, const struct plan_rates *rates, double trained,
                           int reduce_beside);
#endif
