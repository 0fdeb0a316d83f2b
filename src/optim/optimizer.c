#include "config.h"
#include "optim/optimizer.h"
#include "base/memory.h"
#include "model/stage.h"
#include <math.h>

struct optimizer *optimizer_new(struct model *m) {
    struct optimizer *o = memory_alloc(sizeof *o);
    struct backend *be = m->be;
    o->model = m;
    o->m = be->alloc(be, m->sizes.moments * sizeof *o->m);
    o->v = be->alloc(be, m->sizes.moments * sizeof *o->v);
    o->factor = be->alloc(be, sizeof *o->factor);
    return o;
}

void optimizer_free(struct optimizer *o) {
    if (!o) return;
    struct backend *be = o->model->be;
    be->release(be, o->m);
    be->release(be, o->v);
    be->release(be, o->factor);
    memory_free(o);
}

void optimizer_reduce(struct optimizer *o, double *norm2) {
    struct model *m = o->model;
    struct backend *be = m->be;
    const struct params *p = m->params;
    int whole = m->config->parallelism.shard == SHARD_NONE;
    stages_finish(m);
    if (whole) {
        size_t dense = m->sizes.dense_grads;
        be->all_reduce(be, be->grid->world, m->grads, dense);
        be->all_reduce(be, be->grid->dp, m->grads + dense, m->sizes.trained_grads - dense);
    }
    for (int i = 0; i < p->n; i++) {
        const struct param *t = &p->list[i];
        const struct share *s = &m->shares[i];
        float *grad = m->grads + s->grad;
        MPI_Comm group = share_group(be->grid, t);
        if (s->frozen) continue;
        if (!whole && !s->staged) {
            if (s->replicated)
                be->all_reduce(be, group, grad, t->n);
            else
                be->reduce_scatter(be, group, grad, s->counts);
        }
        be->sum_squares(be, norm2, grad + (s->norm_first - s->kept_first), s->norm_n);
    }
}

static float decay_of(const struct config *c, const struct param *t) {
    int on = t->group == GROUP_MATRIX || (t->group == GROUP_NORM && c->optimizer.decay_norms) ||
             (t->group == GROUP_EMBEDDING && c->optimizer.decay_embeddings);
    return on ? (float)c->optimizer.weight_decay : 0;
}

void optimizer_update(struct optimizer *o, double lr) {
    struct model *m = o->model;
    struct backend *be = m->be;
    const struct config *c = m->config;
    double t = (double)o->t + 1;
    struct adamw a = {.lr = (float)lr,
                      .beta1 = (float)c->optimizer.beta1,
                      .beta2 = (float)c->optimizer.beta2,
                      .eps = (float)c->optimizer.eps,
                      .correction1 = (float)(1 - pow(c->optimizer.beta1, t)),
                      .correction2 = (float)(1 - pow(c->optimizer.beta2, t))};
    for (int i = 0; i < m->params->n; i++) {
        const struct param *p = &m->params->list[i];
        const struct share *s = &m->shares[i];
        if (s->frozen) continue;
        a.decay = decay_of(c, p);
        be->adamw(be, model_master(m, i), model_own_weight(m, i), o->m + s->state, o->v + s->state,
                  model_own_grad(m, i), o->factor, s->n, a);
        model_spread(m, i);
    }
}
