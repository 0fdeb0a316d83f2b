/* One optimiser step, from the micro-batches to the new weights. */
#ifndef REGULON_TRAIN_STEP_H
#define REGULON_TRAIN_STEP_H
#include "data/batch.h"
#include "model/model.h"
#include "optim/optimizer.h"

/* Sums of a step over the whole grid, the same on every rank. */
struct step_sums {
    double loss;      /* mean over the targets, weighted, nats */
    double aux, z;    /* mean over the micro-batches, without coefficients */
    double grad_norm; /* before clipping */
    double tokens;    /* real tokens of the step */
    double targets;   /* that counted */
    double sum_len2;  /* of squared document lengths, for the FLOPs of attention */
    int finite;       /* loss and norm are finite: the step may be applied */
    double reduce_s;  /* this rank's seconds in the reductions */
};

/* Forward and backward of this rank's micro-batches[n], then the grid's sums; the gradients are
 * left in the model, summed as optimizer_reduce leaves them, and the routing sums (m->counts_sum,
 * m->entropy_sum) are the whole grid's. Collective over world: every rank has the same n; a
 * micro-batch may be empty. */
struct step_sums step_gradients(struct model *m, struct optimizer *o,
                                const struct batch *const *batches, int n, double *votes,
                                int n_votes);

/* Clips, updates, moves the selection bias; nothing at all when the sums are not finite. Collective
 * over world. */
void step_apply(struct optimizer *o, const struct step_sums *sums, double lr);
#endif
