/* AdamW over the grid: gradients summed, the norm taken once, each rank updating its share. */
#ifndef REGULON_OPTIM_OPTIMIZER_H
#define REGULON_OPTIM_OPTIMIZER_H
#include "model/model.h"

struct optimizer {
    struct model *model; /* borrowed: it has the masters, the gradients, the shares */
    float *m, *v;        /* [model->sizes.moments] first and second moment, backend memory */
    float *factor;       /* [1] of backend->decide, backend memory */
    int64_t t;           /* updates applied: Adam's t; the caller counts */
};

/* Moments are zero. The caller frees it. */
struct optimizer *optimizer_new(struct model *m);
void optimizer_free(struct optimizer *o);

/* Sums the gradients over the grid, dense ones over the world, experts' over dp; those of staged
 * tensors are summed already (each rank then holds the sum of its share at least), and adds this
 * rank's part of the squared norm to norm2[1], backend memory: the sum over the world counts each
 * logical parameter once. Collective over world. */
void optimizer_reduce(struct optimizer *o, double *norm2);

/* Update t + 1 at this rate with gradients times o->factor, then the new weights to all who hold
 * them; with a negative factor nothing changes. Collective over world. */
void optimizer_update(struct optimizer *o, double lr);
#endif
