#include "config.h"
#include "optim/optimizer.h"
#include "base/memory.h"
#include "model/reduce.h"
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
    reduce_finish(m);
    for (int i = 0; i < m->params->n; i++) {
        const struct share *s = &m->shares[i];
        if (!s->frozen)
            be->sum_squares(be, norm2, m->grads + s->grad + (s->norm_first - s->kept_first),
                            s->norm_n);
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
        if (m->reduce_beside) be->beside(be);
        model_spread(m, i);
        if (m->reduce_beside) be->back(be, GATHER_TICKET);
    }
    if (m->reduce_beside) be->await(be, GATHER_TICKET);
}
