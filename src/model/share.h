/* Which part of each parameter this rank updates: with parallelism.shard none all that it holds,
 * else an even share of the rows among the ranks that hold the same ones. */
#ifndef REGULON_MODEL_SHARE_H
#define REGULON_MODEL_SHARE_H
#include "config/config.h"
#include "model/params.h"
#include <mpi.h>

/* In elements of the rank's part of the tensor. */
struct share {
    size_t first, n;           /* updated here */
    size_t state;              /* place in the arrays of masters and moments */
    size_t norm_first, norm_n; /* counted here in the gradient's norm, and saved here: a partition
                                  of the logical tensor over all ranks */
    int frozen;                /* train.freeze: neither updated nor counted */
    int gathered;              /* other ranks update the rest: it must be gathered */
    int replicated;            /* fewer rows than ranks: every rank updates all of it */
    size_t *counts;            /* [ranks of the group] elements of each rank's even share */
};

/* The shares of p's parameters, [p->n]; *n_state: elements of this rank's masters. The caller frees
 * them with shares_free. */
struct share *shares_new(const struct params *p, const struct grid *g, const struct config *c,
                         size_t *n_state);
void shares_free(struct share *list, int n);

/* The ranks that hold the same rows of a tensor; borrowed. */
MPI_Comm share_group(const struct grid *g, const struct param *t);
#endif
