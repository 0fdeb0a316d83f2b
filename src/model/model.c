#include "config.h"
#include "model/model.h"
#include "base/memory.h"
#include "grid/watchdog.h"
#include "model/block.h"
#include "model/recompute.h"
#include "model/stage.h"
#include <assert.h>
#include <string.h>

struct model *model_new(const struct config *c, struct backend *be, int capacity,
                        int with_gradients) {
    struct model *m = memory_alloc(sizeof *m);
    struct shape s = shape_of(c);
    enum shard_kind shard = (enum shard_kind)c->parallelism.shard;
    if (!with_gradients && shard == SHARD_FULL) shard = SHARD_OPTIMIZER;
    m->config = c, m->be = be, m->s = s, m->depth = s.L, m->capacity = capacity;
    m->attention = (struct attention_shape){.H = s.H, .G = s.G, .K = s.K, .window = s.window};
    m->moe = (struct moe_shape){.D = s.D, .F = s.F, .E = s.E, .A = s.A, .capacity = capacity};
    m->params = params_new(&s, be->grid, c);
    m->shares = shares_new(m->params, be->grid, c, shard, &m->sizes);
    size_t N = (size_t)capacity, D = (size_t)s.D, L = (size_t)s.L, E = (size_t)s.E,
           r = be->real_bytes, HK = (size_t)(s.H * s.K), rows;
    be->reserve(be, (struct work){.N = capacity,
                                  .longest = (int)c->dataset.max_seq_length,
                                  .D = s.D,
                                  .F = s.F,
                                  .E = s.E,
                                  .A = s.A,
                                  .V = s.V,
                                  .attention = m->attention,
                                  .theta = s.theta,
                                  .backward = with_gradients,
                                  .beside = stages_wanted(m)});
    rows = be->moe_rows(be, m->moe);
    m->weights = be->alloc(be, m->sizes.weights * r);
    m->bias = be->alloc(be, L * E * sizeof *m->bias);
    m->biased = c->router.bias_rate > 0;
    m->counts = be->alloc(be, L * E * sizeof *m->counts);
    m->P = be->alloc(be, L * E * sizeof *m->P);
    m->entropy = be->alloc(be, L * sizeof *m->entropy);
    m->z = be->alloc(be, L * sizeof *m->z);
    m->sums = be->alloc(be, model_sums_bytes(m));
    m->host_sums = memory_alloc(model_sums_bytes(m));
    m->host_bias = memory_alloc_array(L * E, sizeof *m->host_bias);
    recompute_new_layers(m, rows, with_gradients);
    m->tokens = be->alloc(be, N * sizeof(int32_t));
    m->targets = be->alloc(be, N * sizeof(int32_t));
    m->positions = be->alloc(be, N * sizeof(int32_t));
    m->target_weights = be->alloc(be, N * sizeof(float));
    m->loss_scale = be->alloc(be, sizeof *m->loss_scale);
    m->x = be->alloc(be, N * D * r);
    m->xn = be->alloc(be, N * D * r);
    m->delta = be->alloc(be, N * D * r);
    m->rstd = be->alloc(be, N * sizeof(float));
    m->logits = be->alloc(be, N * E * sizeof(float));
    m->y = be->alloc_shared(be, rows * D * r);
    if (!with_gradients) return m;
    stages_new(m);
    m->grads = be->alloc(be, m->sizes.grads * sizeof(float));
    m->dx = be->alloc(be, N * D * r);
    m->dxn = be->alloc(be, N * D * r);
    m->dattended = be->alloc(be, N * HK * r);
    m->dqkv = be->alloc(be, N * (size_t)((s.H + 2 * s.G) * s.K) * r);
    m->dp = be->alloc(be, N * (size_t)s.A * sizeof(float));
    m->dp_rows = be->alloc_shared(be, rows * sizeof(float));
    m->dprobs = be->alloc(be, L * E * sizeof *m->dprobs);
    m->dz = be->alloc(be, sizeof *m->dz);
    if (c->router.balance_over == BALANCE_WORLD)
        m->all_counts = be->alloc(be, L * E * sizeof *m->all_counts);
    if (r != sizeof(float)) m->masters = be->alloc(be, m->sizes.masters * sizeof *m->masters);
    return m;
}

void model_free(struct model *m) {
    if (!m) return;
    struct backend *be = m->be;
    void *const all[] = {m->weights,
                         m->bias,
                         m->grads,
                         m->tokens,
                         m->targets,
                         m->positions,
                         m->target_weights,
                         m->loss_scale,
                         m->x,
                         m->xn,
                         m->delta,
                         m->logits,
                         m->rstd,
                         m->y,
                         m->dx,
                         m->dxn,
                         m->dattended,
                         m->dqkv,
                         m->dp,
                         m->dp_rows,
                         m->counts,
                         m->P,
                         m->entropy,
                         m->z,
                         m->all_counts,
                         m->dprobs,
                         m->dz,
                         m->sums,
                         m->masters};
    recompute_free_layers(m);
    stages_free(m);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) be->release(be, all[i]);
    memory_free(m->host_sums);
    memory_free(m->host_bias);
    shares_free(m->shares, m->params->n);
    params_free(m->params);
    memory_free(m);
}

void model_put(struct model *m, int i, size_t first, size_t n, const float *values) {
    const struct share *s = &m->shares[i];
    size_t from = first > s->first ? first : s->first,
           to = first + n < s->first + s->n ? first + n : s->first + s->n;
    m->be->upload_real(m->be, real_at(m->be, m->weights, s->weight + (first - s->kept_first)),
                       values, n);
    if (m->masters && from < to)
        m->be->upload(m->be, model_master(m, i) + (from - s->first), values + (from - first),
                      (to - from) * sizeof *values);
    stages_forget(m);
}

void model_init(struct model *m, uint64_t seed) {
    enum { SOME = 1 << 18 };
    float *values = memory_alloc_array(SOME, sizeof *values);
    for (int i = 0; i < m->params->n; i++) {
        const struct share *s = &m->shares[i];
        for (size_t at = s->kept_first, n, end = at + s->kept_n; at < end; at += n) {
            n = end - at < SOME ? end - at : SOME;
            params_init(m->params, i, seed, at, n, values);
            model_put(m, i, at, n, values);
        }
    }
    memory_free(values);
}

real_t *model_own_weight(const struct model *m, int i) {
    const struct share *s = &m->shares[i];
    return real_at(m->be, m->weights, s->weight + (s->first - s->kept_first));
}

float *model_own_grad(const struct model *m, int i) {
    const struct share *s = &m->shares[i];
    return m->grads + s->grad + (s->first - s->kept_first);
}

float *model_master(const struct model *m, int i) {
    return m->masters ? m->masters + m->shares[i].state : (float *)model_own_weight(m, i);
}

real_t *model_whole(struct model *m, int i) {
    if (m->shares[i].staged) stage_weights(m, stage_of(m, i));
    return model_weight(m, i);
}

void model_set_bias(struct model *m, const float *bias) {
    size_t n = (size_t)m->s.L * (size_t)m->s.E;
    for (size_t k = 0; k < n; k++) m->biased |= bias[k] != 0;
    m->be->upload(m->be, m->bias, bias, n * sizeof *bias);
}

void model_publish(struct model *m) {
    struct backend *be = m->be;
    for (int i = 0; i < m->params->n; i++) {
        const struct param *t = &m->params->list[i];
        const struct share *s = &m->shares[i];
        be->round(be, model_own_weight(m, i), model_master(m, i), s->n);
        if (s->gathered)
            be->all_gather(be, share_group(be->grid, t), model_weight(m, i), s->counts);
    }
    stages_forget(m);
}

static size_t n_doubles(const struct model *m) {
    return SUMS_ENTROPY + (size_t)m->s.L;
}

size_t model_sums_bytes(const struct model *m) {
    return n_doubles(m) * sizeof(double) + (size_t)m->s.L * (size_t)m->s.E * sizeof(uint32_t);
}

uint32_t *model_sums_counts(const struct model *m, double *sums) {
    return (uint32_t *)(sums + n_doubles(m));
}

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
 * its start differs from pass to pass; nor where rows are made again, which is rare. */
static int replays(struct model *m, const char *pass, int accumulate) {
    return !m->stages && !m->be->rows_again &&
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
        x = y->x2, delta = m->delta;
    }
    be->add_norm(be, m->x, m->xn, m->rstd, x, delta, model_weight(m, p->norm), m->s.eps, N, D);
}

void model_continue(struct model *m, const struct batch *b, struct kept_all *kept) {
    watchdog_phase(WATCHDOG_FORWARD, -1);
    m->be->clock(m->be, CLOCK_FORWARD);
    load_batch(m, b);
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
    for (int l = L - 1; l >= 0; l--) {
        struct layer_state *y = &m->layers[l];
        watchdog_phase(WATCHDOG_BACKWARD, l);
        stage_backward(m, stage_layer(l));
        recompute_layer(m, l);
        experts_backward(m, l);
        be->norm_backward(be, m->dx, model_grad(m, p->layers[l].norm2), m->dxn, y->x2, y->rstd2,
                          model_weight(m, p->layers[l].norm2), N, D);
        attention_backward(m, l);
        be->norm_backward(be, m->dx, model_grad(m, p->layers[l].norm1), m->dxn, y->x1, y->rstd1,
                          model_weight(m, p->layers[l].norm1), N, D);
        stage_reduce(m, stage_layer(l));
    }
    stage_backward(m, STAGE_EMBED);
    be->embed_backward(be, model_grad(m, p->embed), m->dx, m->tokens, N, D, m->s.V);
    stage_reduce(m, STAGE_EMBED);
}

void model_backward(struct model *m, double loss_scale, double balance_weight) {
    struct backend *be = m->be;
    float scale = (float)loss_scale;
    watchdog_phase(WATCHDOG_BACKWARD, -1);
    be->clock(be, CLOCK_BACKWARD);
    be->upload(be, m->loss_scale, &scale, sizeof scale);
    model_balance(m, balance_weight);
    if (replays(m, "backward pass", m->has_grads)) {
        mark_layers(m, WATCHDOG_BACKWARD);
    } else {
        backward(m);
        be->recorded(be);
    }
    m->has_grads = 1;
    be->clock(be, CLOCK_OTHER);
}

/* What matrix products do not overwrite begins at zero, and what is added to in `stage_reduce`. */
static int begins_at_zero(const struct model *m, int i) {
    return m->shares[i].staged || m->params->list[i].group == GROUP_NORM ||
           (i == m->params->embed && m->params->embed != m->params->head);
}

void model_reset(struct model *m) {
    struct backend *be = m->be;
    be->zero(be, m->sums, model_sums_bytes(m));
    if (m->stash_need) be->zero(be, m->stash_need, 2 * sizeof *m->stash_need);
    stages_finish(m);
    for (int i = 0; i < m->params->n; i++) {
        const struct share *s = &m->shares[i];
        if (begins_at_zero(m, i) && !(s->staged && s->frozen))
            be->zero(be, m->grads + s->grad, s->kept_n * sizeof *m->grads);
    }
    m->has_grads = 0;
}
