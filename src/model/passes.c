/* The forward and the backward pass of a micro-batch. */
#include "config.h"
#include "model/model.h"
#include "grid/watchdog.h"
#include "model/block.h"
#include "model/low_copies.h"
#include "model/low_statistics.h"
#include "model/recompute.h"
#include "model/reduce.h"
#include "model/stage.h"
#include <assert.h>

static void load_batch(struct model *m, const struct batch *b) {
    struct backend *be = m->be;
    assert(b->n <= m->capacity);
    size_t bytes = (size_t)b->n * sizeof(int32_t);
    m->N = b->n, m->batch = b;
    be->upload(be, m->tokens, b->tokens, bytes);
    be->upload(be, m->targets, b->targets, bytes);
    be->upload(be, m->positions, b->positions, bytes);
    be->upload(be, m->target_weights, b->weights, bytes);
    be->documents(be, b->cu_seqlens, b->n_documents);
}

/* 1: the backend has this pass recorded, and repeats it. Not with stages: which rooms hold what at
 * its start differs from pass to pass; nor with work beside it; nor where rows are made again or
 * statistics taken, which is rare. */
static int replays(struct model *m, const char *pass, int accumulate) {
    return !m->stages && !m->reduces && !m->be->rows_again && !m->sampled &&
           m->be->replay(m->be, (struct recording){
                                    .owner = m, .name = pass, .N = m->N, .accumulate = accumulate});
}

/* The marks of a pass that is repeated: every rank sets the same ones, and others may not repeat
 * it. */
static void mark_layers(const struct model *m, enum watchdog_phase phase) {
    for (int k = 0; k < m->depth; k++)
        watchdog_phase(phase, phase == WATCHDOG_FORWARD ? k : m->depth - 1 - k);
}

static void forward(struct model *m) {
    struct backend *be = m->be;
    const struct params *p = m->params;
    int N = m->N, D = m->s.D;
    stage_forward(m, STAGE_EMBED);
    be->embed(be, m->x, model_weight(m, p->embed), m->tokens, N, D);
    const real_t *x = m->x, *delta = NULL;
    for (int l = 0; l < m->depth; l++) {
        struct layer_state *y = &m->layers[l];
        watchdog_phase(WATCHDOG_FORWARD, l);
        stage_forward(m, stage_layer(l));
        be->add_norm(be, y->x1, y->xn1, y->rstd1, x, delta, model_weight(m, p->layers[l].norm1),
                     m->s.eps, N, D);
        attention_forward(m, l);
        be->add_norm(be, y->x2, y->xn2, y->rstd2, y->x1, m->delta,
                     model_weight(m, p->layers[l].norm2), m->s.eps, N, D);
        experts_forward(m, l);
        low_statistics_forward(m, l);
        x = y->x2, delta = m->delta;
    }
    be->add_norm(be, m->x, m->xn, m->rstd, x, delta, model_weight(m, p->norm), m->s.eps, N, D);
}

void model_continue(struct model *m, const struct batch *b, struct kept_all *kept) {
    watchdog_phase(WATCHDOG_FORWARD, -1);
    m->be->clock(m->be, CLOCK_FORWARD);
    load_batch(m, b);
    low_copies_make(m);
    m->kept = kept;
    forward(m);
    kept_advance(kept, b);
    m->be->clock(m->be, CLOCK_OTHER);
}

void model_forward(struct model *m, const struct batch *b) {
    struct backend *be = m->be;
    m->kept = NULL;
    watchdog_phase(WATCHDOG_FORWARD, -1);
    be->clock(be, CLOCK_FORWARD);
    load_batch(m, b);
    low_copies_make(m);
    if (replays(m, "forward pass", 0)) {
        mark_layers(m, WATCHDOG_FORWARD);
    } else {
        forward(m);
        be->recorded(be);
    }
    be->clock(be, CLOCK_OTHER);
}

void model_loss(struct model *m, double *loss, double *each) {
    stage_weights(m, stage_head(m));
    m->be->head(m->be, NULL, NULL, loss, each, m->xn, model_weight(m, m->params->head), m->targets,
                m->target_weights, NULL, m->N, m->s.V, m->s.D, /*accumulate=*/0);
}

void model_logits(struct model *m, real_t *logits) {
    stage_weights(m, stage_head(m));
    m->be->matmul(m->be, logits, m->xn, model_weight(m, m->params->head), m->N, m->s.V, m->s.D);
}

void model_logits_of(struct model *m, const int *rows, int n, real_t *logits) {
    struct backend *be = m->be;
    size_t D = (size_t)m->s.D;
    real_t *some = m->delta; /* the last norm has read it */
    for (int i = 0; i < n; i++)
        be->copy(be, real_at(be, some, (size_t)i * D), real_at(be, m->xn, (size_t)rows[i] * D),
                 D * be->real_bytes);
    stage_weights(m, stage_head(m));
    be->matmul(be, logits, some, model_weight(m, m->params->head), n, m->s.V, m->s.D);
}

void model_balance(struct model *m, double weight) {
    struct backend *be = m->be;
    size_t n = (size_t)m->s.L * (size_t)m->s.E;
    const uint32_t *counts = m->counts;
    if (m->all_counts) {
        be->copy(be, m->all_counts, counts, n * sizeof *counts);
        be->sum_uint32(be, be->grid->world, m->all_counts, n);
        counts = m->all_counts;
    }
    be->balance(be, m->dprobs, m->dz,
                (struct tally){.aux = m->sums + SUMS_AUX,
                               .z = m->sums + SUMS_Z,
                               .entropy = m->sums + SUMS_ENTROPY,
                               .counts = model_sums_counts(m, m->sums)},
                counts, m->counts, m->P, m->z, m->entropy,
                (struct balance){.L = m->s.L,
                                 .E = m->s.E,
                                 .A = m->s.A,
                                 .hf = m->config->router.aux_loss == AUX_HF,
                                 .coef = m->config->model.router_aux_loss_coef,
                                 .z_coef = m->config->router.z_loss_coef,
                                 .weight = weight});
}

static void backward(struct model *m) {
    struct backend *be = m->be;
    const struct params *p = m->params;
    int N = m->N, D = m->s.D, L = m->s.L;
    stage_backward(m, stage_head(m));
    be->head(be, m->dxn, model_grad(m, p->head), m->sums + SUMS_LOSS, NULL, m->xn,
             model_weight(m, p->head), m->targets, m->target_weights, m->loss_scale, N, m->s.V, D,
             model_adds(m, p->head));
    be->zero(be, m->dx, (size_t)N * (size_t)D * be->real_bytes);
    be->norm_backward(be, m->dx, model_grad(m, p->norm), m->dxn, m->x, m->rstd,
                      model_weight(m, p->norm), N, D);
    stage_reduce(m, stage_head(m));
    reduce_stage(m, stage_head(m));
    for (int l = L - 1; l >= 0; l--) {
        struct layer_state *y = &m->layers[l];
        watchdog_phase(WATCHDOG_BACKWARD, l);
        stage_backward(m, stage_layer(l));
        recompute_layer(m, l);
        experts_backward(m, l);
        be->norm_backward(be, m->dx, model_grad(m, p->layers[l].norm2), m->dxn, y->x2, y->rstd2,
                          model_weight(m, p->layers[l].norm2), N, D);
        attention_backward(m, l);
        low_statistics_attention(m, l);
        be->norm_backward(be, m->dx, model_grad(m, p->layers[l].norm1), m->dxn, y->x1, y->rstd1,
                          model_weight(m, p->layers[l].norm1), N, D);
        stage_reduce(m, stage_layer(l));
        reduce_stage(m, stage_layer(l));
    }
    stage_backward(m, STAGE_EMBED);
    be->embed_backward(be, model_grad(m, p->embed), m->dx, m->tokens, N, D, m->s.V);
    stage_reduce(m, STAGE_EMBED);
    reduce_stage(m, STAGE_EMBED);
}

void model_backward(struct model *m, double loss_scale, double balance_weight) {
    struct backend *be = m->be;
    float scale = (float)loss_scale;
    watchdog_phase(WATCHDOG_BACKWARD, -1);
    be->clock(be, CLOCK_BACKWARD);
    be->upload(be, m->loss_scale, &scale, sizeof scale);
    model_balance(m, balance_weight);
    m->reduces = m->reduce_beside && m->last;
    if (replays(m, "backward pass", m->has_grads)) {
        mark_layers(m, WATCHDOG_BACKWARD);
    } else {
        backward(m);
        be->recorded(be);
    }
    m->has_grads = 1;
    m->reduced = m->reduces, m->reduces = 0;
    be->clock(be, CLOCK_OTHER);
}

/* What matrix products do not overwrite begins at zero, and what is added to in `stage_reduce`
 * alone. */
static int begins_at_zero(const struct model *m, int i) {
    return (m->shares[i].staged && !stage_direct(m, i)) || m->params->list[i].group == GROUP_NORM ||
           (i == m->params->embed && m->params->embed != m->params->head);
}

void model_reset(struct model *m) {
    struct backend *be = m->be;
    be->zero(be, m->sums, model_sums_bytes(m));
    low_statistics_reset(m);
    if (m->stash_need) be->zero(be, m->stash_need, 2 * sizeof *m->stash_need);
    stages_finish(m);
    for (int i = 0; i < m->params->n; i++) {
        const struct share *s = &m->shares[i];
        if (begins_at_zero(m, i) && !(s->staged && s->frozen))
            be->zero(be, m->grads + s->grad, s->kept_n * sizeof *m->grads);
    }
    m->has_grads = m->reduced = 0;
}
