/* The figures of `regulon plan`, and what would make a run fit that does not. The memory is that of
 * a model and an optimiser made on a counting backend: nothing is listed a second time. */
#ifndef REGULON_PLAN_FIGURES_H
#define REGULON_PLAN_FIGURES_H
#include "config/config.h"
#include <stdio.h>

/* What memory is for. Kinds that the program gets besides, and does not know by name, are OTHER. */
enum plan_kind {
    PLAN_WEIGHTS,
    PLAN_EIGHT_BITS, /* copies of weights, in both orders, where products take them in eight bits */
    PLAN_GRADIENTS,
    PLAN_MASTERS,
    PLAN_MOMENTS,
    PLAN_ROOMS,     /* shard full: weights and gradients that are whole for a while */
    PLAN_STREAM,    /* kept for the backward pass: the residual stream and its norms, */
    PLAN_ATTENTION, /* queries, keys, values, results, log-sum-exps, */
    PLAN_ROUTER,    /* probabilities and choices, */
    PLAN_EXPERTS,   /* the experts' rows */
    PLAN_PASSING,   /* between layers, and gradients of activations */
    PLAN_EXCHANGE,
    PLAN_WORKSPACE,
    PLAN_OTHER,     /* the micro-batch, counts, sums */
    PLAN_COPIES,    /* of what checkpoints save; host memory, so in the sum on the CPU only */
    PLAN_LIBRARIES, /* the program, its libraries, CUDA's context, the rounding of allocations */
    N_PLAN_KINDS
};
const char *plan_kind_name(enum plan_kind kind); /* "weights": one word, for JSON */
const char *plan_kind_text(enum plan_kind kind); /* for people */

const char *plan_recompute_name(int kind); /* of enum recompute_kind */

/* Of the rank that needs most, the last. */
struct plan_memory {
    double bytes[N_PLAN_KINDS], total;
    double copies;         /* host memory, on a GPU too */
    const char *attention; /* "cudnn", "own" */
    int reduce_beside;     /* model/reduce.h */
};

/* What a rank sends in a step, bytes; rings for what is reduced and gathered, and experts that are
 * chosen evenly. */
enum plan_link {
    PLAN_TOKENS,           /* within the ep group, forward and backward */
    PLAN_DENSE_GRADIENTS,  /* all ranks */
    PLAN_DENSE_WEIGHTS,    /* all ranks */
    PLAN_EXPERT_GRADIENTS, /* the dp group */
    PLAN_EXPERT_WEIGHTS,   /* the dp group */
    N_PLAN_LINKS
};
const char *plan_link_name(enum plan_link link);

/* A deck on a grid. */
enum { PLAN_NODE_RANKS = 8 /* where nothing else is said */ };
struct plan {
    const struct config *config; /* borrowed */
    int ranks, dp_size, ep_size;
    int node_ranks; /* ranks of a node */
    int cuda;       /* else cpu */
    int capability; /* of GPUs, 90 for 9.0, which 0 stands for, too */
    double limit;   /* bytes of a rank */
};

/* grid_refusal's reason, NULL: the sizes are set. The caller frees it. */
char *plan_grid(struct plan *p, int ranks);

/* The last rank's place, without communicators: where shares are uneven it has the largest
 * (params_shard rounds down). */
struct grid plan_place(const struct plan *p);

/* The compute capability of the GPUs, 90 for 9.0; 0 on the CPU. */
int plan_capability(const struct plan *p);

struct plan_memory plan_memory(const struct plan *p);
void plan_wire(const struct plan *p, double sent[N_PLAN_LINKS]);
void plan_parameters(const struct plan *p, double *all, double *active, double *checkpoint_bytes);
double plan_tokens(const struct plan *p); /* of a step, all ranks */
double plan_flops(const struct plan *p);  /* of a step, all ranks, documents of whole windows */

/* Calls `fits` for changes of one key, or else of several, with which it would fit: the words of
 * the command line, and the bytes then. Returns their number. */
typedef void plan_fits(void *context, const char *words, double bytes);
int plan_advise(const struct plan *p, plan_fits *fits, void *context);

/* All of it, for people and as JSON, with the time that it takes at these rates, NULL: without; 1
 * when it fits. */
struct plan_rates;
int plan_print(const struct plan *p, const struct plan_rates *rates, FILE *out);
int plan_print_json(const struct plan *p, const struct plan_rates *rates, FILE *out);
#endif
