#include "config.h"
#include "optim/optimizer.h"
#include "base/memory.h"
#include <math.h>

/* The ranks that hold the same rows of a tensor. */
static MPI_Comm group_of(const struct grid *g, const struct param *t, int *rank, int *size) {
    int dense = t->kind == PARAM_DENSE;
    *rank = dense ? g->rank : g->dp_rank;
    *size = dense ? g->n_ranks : g->dp_size;
    return dense ? g->world : g->dp;
}

static void shard_fill(struct optimizer *o, int i) {
    const struct param *t = &o->model->params->list[i];
    struct shard *s = &o->shards[i];
    int rank, size;
    group_of(o->model->be->grid, t, &rank, &size);
    s->counts = memory_alloc_array((size_t)size, sizeof *s->counts);
    s->frozen = params_match(t, o->model->config->train.freeze);
    s->replicated = params_replicated(t->rows, size);
    int64_t first, last;
    for (int r = 0; r < size; r++) {
        params_shard(t->rows, r, size, &first, &last);
        s->counts[r] = (size_t)(last - first) * (size_t)t->cols;
    }
    params_shard(t->rows, rank, size, &first, &last);
    s->norm_first = (size_t)first * (size_t)t->cols;
    s->norm_n = s->replicated && rank > 0 ? 0 : s->counts[rank];
    s->first = o->sharded ? s->norm_first : 0;
    s->n = o->sharded ? s->counts[rank] : t->n;
    s->state = o->n_state;
    o->n_state += s->n;
}

struct optimizer *optimizer_new(struct model *m) {
    struct optimizer *o = memory_alloc(sizeof *o);
    struct backend *be = m->be;
    o->model = m;
    o->sharded = m->config->parallelism.shard != SHARD_NONE;
    o->shards = memory_alloc_array((size_t)m->params->n, sizeof *o->shards);
    for (int i = 0; i < m->params->n; i++) shard_fill(o, i);
    o->m = be->alloc(be, o->n_state * sizeof *o->m);
    o->v = be->alloc(be, o->n_state * sizeof *o->v);
    return o;
}

void optimizer_free(struct optimizer *o) {
    if (!o) return;
    struct backend *be = o->model->be;
    for (int i = 0; i < o->model->params->n; i++) memory_free(o->shards[i].counts);
    be->release(be, o->m);
    be->release(be, o->v);
    memory_free(o->shards);
    memory_free(o);
}

double optimizer_reduce(struct optimizer *o) {
    struct model *m = o->model;
    struct backend *be = m->be;
    const struct params *p = m->params;
    double norm2 = 0;
    if (!o->sharded) {
        be->all_reduce(be, be->grid->world, m->grads, p->dense_size);
        be->all_reduce(be, be->grid->dp, m->grads + p->dense_size, p->size - p->dense_size);
    }
    for (int i = 0; i < p->n; i++) {
        const struct param *t = &p->list[i];
        const struct shard *s = &o->shards[i];
        float *grad = m->grads + t->offset;
        int rank, size;
        if (s->frozen) continue;
        MPI_Comm group = group_of(be->grid, t, &rank, &size);
        if (o->sharded && s->replicated) be->all_reduce(be, group, grad, t->n);
        if (o->sharded && !s->replicated) be->reduce_scatter(be, group, grad, s->counts);
        norm2 += be->sum_squares(be, grad + s->norm_first, s->norm_n);
    }
    return norm2;
}

static float decay_of(const struct config *c, const struct param *t) {
    int on = t->group == GROUP_MATRIX || (t->group == GROUP_NORM && c->optimizer.decay_norms) ||
             (t->group == GROUP_EMBEDDING && c->optimizer.decay_embeddings);
    return on ? (float)c->optimizer.weight_decay : 0;
}

void optimizer_update(struct optimizer *o, double lr, double grad_scale) {
    struct model *m = o->model;
    struct backend *be = m->be;
    const struct config *c = m->config;
    o->t++;
    struct adamw a = {.lr = (float)lr,
                      .beta1 = (float)c->optimizer.beta1,
                      .beta2 = (float)c->optimizer.beta2,
                      .eps = (float)c->optimizer.eps,
                      .correction1 = (float)(1 - pow(c->optimizer.beta1, (double)o->t)),
                      .correction2 = (float)(1 - pow(c->optimizer.beta2, (double)o->t)),
                      .grad_scale = (float)grad_scale};
    for (int i = 0; i < m->params->n; i++) {
        const struct param *t = &m->params->list[i];
        const struct shard *s = &o->shards[i];
        real_t *weight = real_at(be, m->weights, t->offset + s->first);
        int rank, size;
        if (s->frozen) continue;
        MPI_Comm group = group_of(be->grid, t, &rank, &size);
        a.decay = decay_of(c, t);
        be->adamw(be, weight, weight, o->m + s->state, o->v + s->state,
                  m->grads + t->offset + s->first, s->n, a);
        if (o->sharded && !s->replicated)
            be->all_gather(be, group, real_at(be, m->weights, t->offset), s->counts);
    }
}
