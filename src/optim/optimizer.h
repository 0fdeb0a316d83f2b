/* AdamW over the grid: gradients summed, the norm taken once, each rank updating its share. */
#ifndef REGULON_OPTIM_OPTIMIZER_H
#define REGULON_OPTIM_OPTIMIZER_H
#include "model/model.h"

/* A rank's share of one tensor, in elements of its local part. With shard none the share is all of
 * it. */
struct shard {
    size_t first, n; /* updated here */
    size_t state;    /* place in the moments' arrays */
    size_t norm_first,
        norm_n;     /* counted here in the norm: shares that partition the logical tensor */
    int frozen;     /* train.freeze: neither updated nor counted in the norm */
    int replicated; /* fewer rows than ranks: every rank updates all of it */
    size_t *counts; /* [ranks of the group] elements of each rank's share */
};

struct optimizer {
    struct model *model;  /* borrowed */
    int sharded;          /* parallelism.shard is not none */
    struct shard *shards; /* [params->n] */
    size_t n_state;       /* elements of the moments on this rank */
    float *m, *v;         /* [n_state] first and second moment, backend memory */
    int64_t t;            /* updates applied: Adam's t */
};

/* Moments are zero; the FP32 weights are the masters. The caller frees it. */
struct optimizer *optimizer_new(struct model *m);
void optimizer_free(struct optimizer *o);

/* Sums the gradients over the grid, dense ones over the world, experts' over dp (each rank then
 * holds the sum of its share at least). Returns this rank's part of the squared norm: the sum over
 * the world counts each logical parameter once. Collective over world. */
double optimizer_reduce(struct optimizer *o);

/* One update at this rate with gradients times grad_scale, then the new weights to all who hold
 * them. Collective over world. */
void optimizer_update(struct optimizer *o, double lr, double grad_scale);
#endif
