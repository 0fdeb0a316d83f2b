/* The letters. Used everywhere, in code and in comments, for the sizes of the model:
 *   B sequences a micro-batch   T tokens a sequence        N tokens a micro-batch (B T)
 *   D model width               H attention heads          G key-value heads      K head width
 *   F expert width              E experts                  A experts a token      L layers
 *   V vocabulary                P ranks */
#ifndef REGULON_MODEL_SHAPE_H
#define REGULON_MODEL_SHAPE_H
#include "config/config.h"

struct shape {
    int D, H, G, K, F, E, A, L, V;
    int window;   /* tokens a query sees, itself included; 0: all before it in its document */
    int tied;     /* the head is the embedding */
    float eps;    /* of the norms */
    double theta; /* of RoPE */
};

/* Queries, keys and values of a token, one behind the other. */
static inline int qkv_width(const struct shape *s) {
    return (s->H + 2 * s->G) * s->K;
}

/* From a checked configuration. */
struct shape shape_of(const struct config *c);

/* Model FLOPs of forward and backward: per token 6 x (attention projections, router, A experts,
 * head), plus 6 L H K sum(len^2) of causal attention, where sum_len2 is the sum of the squared
 * document lengths. */
double shape_flops(const struct shape *s, double tokens, double sum_len2);
#endif
