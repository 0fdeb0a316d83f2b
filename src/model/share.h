/* Which part of each parameter this rank updates: with parallelism.shard none all that it has, else
 * an even share of the rows among the ranks that have the same ones. And which it keeps: with
 * `full` the same share, the whole being there for a while only (stage.h), else all. */
#ifndef REGULON_MODEL_SHARE_H
#define REGULON_MODEL_SHARE_H
#include "config/config.h"
#include "model/params.h"
#include <mpi.h>

/* In elements of the rank's part of the tensor. */
struct share {
    size_t first, n;           /* updated here */
    size_t state;              /* place in the arrays of masters and moments */
    size_t kept_first, kept_n; /* kept here between the passes, */
    size_t weight, grad;       /* at these places in the arrays of weights and gradients */
    size_t norm_first, norm_n; /* counted here in the gradient's norm, and saved here: a partition
                                  of the logical tensor over all ranks */
    int frozen;                /* train.freeze: neither updated nor counted; has no moments */
    int gathered;              /* other ranks update the rest: it must be gathered */
    int replicated;            /* fewer rows than ranks: every rank updates all of it */
    int from_master; /* the weights are not kept: they are made of the masters whenever eight bits
                        or others want them, in the stage's room where they are staged, else at
                        `weight`, one place for all that are not kept */
    int staged; /* no rank keeps the whole of the matrix: passes find it in a room, and leave its
                   gradient in one */
    size_t *counts; /* [ranks of the group] elements of each rank's even share */
};

/* Elements of the arrays that shares have places in. Whole weights lie as the table has them,
 * behind them the room for those that are not kept. Gradients lie as the table has them, too,
 * without those of frozen tensors, which share a room at the end: the backward pass writes there
 * what nobody reads. (A tensor that is one matrix with a trained one keeps its place.) */
struct share_sizes {
    size_t weights;
    size_t masters;
    size_t moments;       /* what is updated lies first */
    size_t dense_grads;   /* up to here dense tensors, */
    size_t trained_grads; /* up to here experts, */
    size_t grads;         /* up to here the room */
};

/* The shares of p's parameters, [p->n]; low_alone 1: of experts that compute in eight bits the
 * weights are from_master. The caller frees them with shares_free. */
struct share *shares_new(const struct params *p, const struct grid *g, const struct config *c,
                         enum shard_kind shard, int low_alone, struct share_sizes *sizes);
void shares_free(struct share *list, int n);

/* The ranks that hold the same rows of a tensor; borrowed. */
MPI_Comm share_group(const struct grid *g, const struct param *t);
#endif
