/* What eight bits do to the operands of a layer's products, in the steps that are sampled: of all
 * micro-batches, those along whose rows the products with weights sum, and the weights. Operands of
 * gradients of weights are the same values, in blocks down the tokens: they are left out. */
#ifndef REGULON_MODEL_LOW_STATISTICS_H
#define REGULON_MODEL_LOW_STATISTICS_H
#include "model/model.h"

/* Of the four products of a layer what goes in, the weights, and the gradient of what comes out. up
 * and down are the experts'; down's input is h, up's gradient dz. create.c of the metrics has
 * names.
 */
enum low_kind {
    LOW_QKV_INPUT,
    LOW_QKV_WEIGHT,
    LOW_QKV_GRADIENT,
    LOW_O_INPUT,
    LOW_O_WEIGHT,
    LOW_O_GRADIENT,
    LOW_UP_INPUT,
    LOW_UP_WEIGHT,
    LOW_UP_GRADIENT,
    LOW_DOWN_INPUT,
    LOW_DOWN_WEIGHT,
    LOW_DOWN_GRADIENT,
    N_LOW_KINDS
};

/* Shares are of the values that are not 0; NaN, also in the others: there are none. */
enum low_figure {
    LOW_SHARE_UNDERFLOW, /* that became 0 */
    LOW_SHARE_LARGEST,   /* that became the largest magnitude of the format */
    LOW_SHARE_NONFINITE, /* in blocks with a NaN or an infinity, which no other figure counts */
    LOW_MOST,            /* largest magnitude */
    LOW_LEAST_SCALE,
    LOW_MOST_SCALE,
    LOW_ERROR, /* Frobenius norm of the error over that of the values */
    N_LOW_FIGURES
};

struct low_figures {
    int64_t *values;                /* [L, N_LOW_KINDS] that are not 0 */
    double *figures[N_LOW_FIGURES]; /* [L, N_LOW_KINDS] each */
};

/* 1 where a deck's runs sample steps. */
int low_statistics_wanted(const struct config *c);

void low_statistics_new(
    struct model *m); /* of a model with gradients; m->low_sums, NULL: not wanted */
void low_statistics_free(struct model *m);
void low_statistics_reset(struct model *m); /* where a step is sampled, its sums begin */

/* In a pass of a sampled step (m->sampled), each at the place where the layer has: what goes into
 * its products and, in the first micro-batch, weights, behind its forward pass; the gradient of its
 * experts' results and dz, between the experts' products backward; the gradients of its
 * projections' results, behind attention_backward. Else nothing. */
void low_statistics_forward(struct model *m, int layer);
void low_statistics_experts(struct model *m, int layer);
void low_statistics_attention(struct model *m, int layer);

/* The sums of the step over the grid, on rank 0; others' figures are untouched. Waits for the
 * device. Collective over world. */
void low_statistics_read(struct model *m, struct low_figures *f);

struct low_figures low_figures_new(int n_layers); /* low_figures_free frees it */
void low_figures_free(struct low_figures *f);
#endif
