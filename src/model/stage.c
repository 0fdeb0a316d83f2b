/* Work between `beside` and `back` begins when what was asked for before it is done, so a room is
 * filled only after the stage that used it, two before; and what is awaited is done before what is
 * asked for next, so a stage finds its weights, and a gradient's room empty. */
#include "config.h"
#include "model/stage.h"
#include "base/memory.h"
#include "model/block.h"
#include "model/low_copies.h"
#include <assert.h>

int stage_tensors(const struct model *m, int k, int list[STAGE_TENSORS]) {
    const struct params *p = m->params;
    int n = 0;
    if (k == STAGE_EMBED) {
        list[n++] = p->embed;
    } else if (k == stage_head(m)) {
        list[n++] = p->norm;
        list[n++] = p->head;
    } else {
        const struct layer_params *y = &p->layers[k - 1];
        const int of_layer[] = {y->norm1, y->q,      y->k,  y->v,   y->o,
                                y->norm2, y->router, y->up, y->down};
        for (; n < STAGE_TENSORS; n++) list[n] = of_layer[n];
    }
    return n;
}

/* Those of stage k that are staged; returns their number. */
static int list_tensors(const struct model *m, int k, int list[STAGE_TENSORS]) {
    int n = 0, all = stage_tensors(m, k, list);
    for (int i = 0; i < all; i++)
        if (m->shares[list[i]].staged) list[n++] = list[i];
    return n;
}

int stage_of(const struct model *m, int i) {
    int list[STAGE_TENSORS];
    for (int k = STAGE_EMBED; k <= stage_head(m); k++)
        for (int j = stage_tensors(m, k, list) - 1; j >= 0; j--)
            if (list[j] == i) return k;
    return STAGE_NONE;
}

int stages_wanted(const struct model *m) {
    int n = 0;
    for (int i = 0; i < m->params->n; i++) n += m->shares[i].staged;
    return n > 0;
}

int stage_direct(const struct model *m, int i) {
    const struct share *own = &m->shares[i];
    const struct param *t = &m->params->list[i];
    size_t unit = (size_t)m->be->own_unit * (size_t)t->cols;
    int product = t->kind == PARAM_EXPERT && own->staged && !own->frozen && !own->replicated;
    return product && unit > 0 && own->first % unit == 0 && own->n % unit == 0;
}

void stages_new(struct model *m) {
    if (!stages_wanted(m)) return;
    struct stages *s = memory_alloc(sizeof *s);
    struct backend *be = m->be;
    int list[STAGE_TENSORS];
    s->place = memory_alloc_array((size_t)m->params->n, sizeof *s->place);
    for (int k = STAGE_EMBED; k <= stage_head(m); k++) {
        size_t at = 0;
        for (int j = 0, n = list_tensors(m, k, list); j < n; j++) {
            const struct param *t = &m->params->list[list[j]];
            if (!t->joined) at = (at + PARAMS_ALIGN - 1) / PARAMS_ALIGN * PARAMS_ALIGN;
            s->place[list[j]] = at;
            at += t->n;
        }
        if (at > s->room) s->room = at;
    }
    for (int r = 0; r < ROOMS; r++) {
        s->weights[r] = be->alloc_beside(be, s->room * be->real_bytes);
        s->grads[r] = be->alloc_beside(be, s->room * sizeof *s->grads[r]);
    }
    m->stages = s;
    stages_forget(m);
}

void stages_free(struct model *m) {
    struct stages *s = m->stages;
    if (!s) return;
    for (int r = 0; r < ROOMS; r++) {
        m->be->release(m->be, s->weights[r]);
        m->be->release(m->be, s->grads[r]);
    }
    memory_free(s->place);
    memory_free(s);
}

/* Tickets of what is done beside: of the weights' rooms, then of the gradients'. */
static int weights_ticket(int k) {
    return k % ROOMS;
}
static int grads_ticket(int k) {
    return ROOMS + k % ROOMS;
}

/* The weights of stage k begin to come, unless its room has them. */
static void bring(struct model *m, int k) {
    struct backend *be = m->be;
    struct stages *s = m->stages;
    int list[STAGE_TENSORS], n = list_tensors(m, k, list);
    if (s->held[k % ROOMS] == k) return;
    s->held[k % ROOMS] = k;
    s->fresh[k % ROOMS] = 1;
    be->beside(be);
    for (int j = 0; j < n; j++) {
        int i = list[j];
        const struct share *own = &m->shares[i];
        real_t *whole = real_at(be, s->weights[k % ROOMS], s->place[i]);
        real_t *part = real_at(be, whole, own->first);
        if (own->from_master)
            be->round(be, part, model_master(m, i), own->n);
        else
            be->copy(be, part, model_own_weight(m, i), own->n * be->real_bytes);
        if (!own->replicated)
            be->all_gather(be, share_group(be->grid, &m->params->list[i]), whole, own->counts);
    }
    be->back(be, weights_ticket(k));
}

/* What waits for the work beside counts as time of reductions. */
static void enter(struct model *m, int k, int next, int with_gradients) {
    struct backend *be = m->be;
    enum clock before = be->clock(be, CLOCK_REDUCE);
    bring(m, k);
    if (next >= STAGE_EMBED && next <= stage_head(m)) bring(m, next);
    be->await(be, weights_ticket(k));
    if (with_gradients) be->await(be, grads_ticket(k));
    m->stages->now = k;
    if (m->stages->fresh[k % ROOMS] && k > STAGE_EMBED && k < stage_head(m))
        low_copies_of_stage(m, k - 1);
    m->stages->fresh[k % ROOMS] = 0;
    be->clock(be, before);
}

void stage_weights(struct model *m, int k) {
    if (m->stages) enter(m, k, STAGE_NONE, /*with_gradients=*/0);
}

void stage_forward(struct model *m, int k) {
    if (m->stages) enter(m, k, k + 1, /*with_gradients=*/0);
}

void stage_backward(struct model *m, int k) {
    if (!m->stages) return;
    int embed = m->params->embed;
    enter(m, k, k - 1, /*with_gradients=*/1);
    if (k == STAGE_EMBED && m->shares[embed].staged) /* rows are added to it */
        m->be->zero(m->be, model_grad(m, embed), m->params->list[embed].n * sizeof(float));
}

void stage_reduce(struct model *m, int k) {
    if (!m->stages) return;
    struct backend *be = m->be;
    int list[STAGE_TENSORS], n = list_tensors(m, k, list);
    assert(m->stages->now == k);
    enum clock before = be->clock(be, CLOCK_REDUCE);
    be->beside(be);
    for (int j = 0; j < n; j++) {
        int i = list[j];
        const struct share *own = &m->shares[i];
        MPI_Comm group = share_group(be->grid, &m->params->list[i]);
        float *whole = model_grad(m, i), *sum = model_own_grad(m, i);
        if (own->frozen) continue;
        if (own->replicated) {
            be->all_reduce(be, group, whole, m->params->list[i].n);
            be->add(be, sum, whole + own->first, own->n);
        } else {
            be->reduce_scatter_add(be, group, sum, whole, own->counts, stage_direct(m, i));
        }
    }
    be->back(be, grads_ticket(k));
    be->clock(be, before);
}

void stages_finish(struct model *m) {
    if (!m->stages) return;
    for (int ticket = 0; ticket < BESIDE_TICKETS; ticket++) m->be->await(m->be, ticket);
}

void stages_forget(struct model *m) {
    if (!m->stages) return;
    for (int r = 0; r < ROOMS; r++) m->stages->held[r] = STAGE_NONE;
    m->stages->now = STAGE_NONE;
}
