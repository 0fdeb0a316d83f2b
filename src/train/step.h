/* One optimiser step, from the micro-batches to the new weights. The work is only asked for until
 * step_read, which waits for it: on a GPU that is the one time in a step that the host waits (with
 * router.bias_rate once more, when that work is done). */
#ifndef REGULON_TRAIN_STEP_H
#define REGULON_TRAIN_STEP_H
#include "data/batch.h"
#include "model/model.h"
#include "optim/optimizer.h"

/* Sums of a step over the whole grid, the same on every rank. */
struct step_sums {
    double loss;           /* mean over the targets, weighted, nats */
    double aux, z;         /* mean over the micro-batches, without coefficients */
    double grad_norm;      /* before clipping */
    double tokens;         /* real tokens of the step */
    double targets;        /* that counted */
    double sum_len2;       /* of squared document lengths, for the FLOPs of attention */
    int finite;            /* the losses and the norm are finite: the step is applied */
    int overflowed;        /* not so because a rank's stash was too small for its rows */
    double capacity;       /* router.capacity that a step needed which was done again; else 0 */
    const double *entropy; /* [L] of the router, summed over tokens; borrowed until the next step */
    const uint32_t *counts;   /* [L, E] tokens for each expert; borrowed until the next step */
    double seconds[N_CLOCKS]; /* this rank's */
};

/* Forward and backward of this rank's micro-batches[n], then the grid's sums, with those of
 * votes[n_votes]; the gradients are left in the model, summed as optimizer_reduce leaves them.
 * Returns W of rule 1: the weight of all targets of the global batch, 0 counts as 1. Collective
 * over world: every rank has the same n; a micro-batch may be empty. */
double step_gradients(struct optimizer *o, const struct batch *const *batches, int n,
                      const double *votes, int n_votes);

/* Clips and updates, unless the sums are not finite. Collective over world. */
void step_apply(struct optimizer *o, double lr);

/* The sums of step_gradients, which returned W; votes become their sums. */
struct step_sums step_read(struct optimizer *o, double W, double *votes, int n_votes);

/* Counts the update and moves the selection bias, when the step was applied. */
void step_finish(struct optimizer *o, const struct step_sums *sums);

/* The four in order. A step that overflowed is done again, each layer's rows made again for its
 * backward pass, and said. */
struct step_sums step_take(struct optimizer *o, const struct batch *const *batches, int n,
                           double lr, double *votes, int n_votes);
#endif
