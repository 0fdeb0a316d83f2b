#include "config.h"
#include "model/model.h"
#include "base/memory.h"
#include "model/block.h"
#include "model/low.h"
#include "model/low_copies.h"
#include "model/low_statistics.h"
#include "model/recompute.h"
#include "model/reduce.h"
#include "model/stage.h"

/* precision.fp8_weights, where products take copies in place of weights. */
static int low_alone(const struct config *c, struct backend *be, int with_gradients) {
    return with_gradients && c->precision.fp8_weights && be->low_bytes(be, 1, 1, 1) > 0;
}

static int has_from_master(const struct model *m) {
    int n = 0;
    for (int i = 0; i < m->params->n; i++) n += m->shares[i].from_master;
    return n > 0;
}

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
    m->shares =
        shares_new(m->params, be->grid, c, shard, low_alone(c, be, with_gradients), &m->sizes);
    size_t N = (size_t)capacity, D = (size_t)s.D, L = (size_t)s.L, E = (size_t)s.E,
           r = be->real_bytes, HK = (size_t)(s.H * s.K), rows;
    be->low_z = with_gradients && c->precision.fp8_activations;
    m->reduce_beside = with_gradients && reduce_beside_wanted(m);
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
                                  .beside = stages_wanted(m)   ? BESIDE_PASSES
                                            : m->reduce_beside ? BESIDE_LAST_PASS
                                                               : BESIDE_NOTHING,
                                  .low = low_recipe(c)});
    rows = be->moe_rows(be, m->moe);
    void *(*alloc)(struct backend * be, size_t bytes) =
        m->reduce_beside ? be->alloc_beside : be->alloc;
    m->weights = alloc(be, m->sizes.weights * r);
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
    if (with_gradients) stages_new(m);
    low_copies_new(m);
    if (!with_gradients) return m;
    low_statistics_new(m);
    m->grads = alloc(be, m->sizes.grads * sizeof(float));
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
    if (r != sizeof(float) || has_from_master(m))
        m->masters = be->alloc(be, m->sizes.masters * sizeof *m->masters);
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
    low_copies_free(m);
    low_statistics_free(m);
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
    if (!s->from_master)
        m->be->upload_real(m->be, real_at(m->be, m->weights, s->weight + (first - s->kept_first)),
                           values, n);
    if (m->masters && from < to)
        m->be->upload(m->be, model_master(m, i) + (from - s->first), values + (from - first),
                      (to - from) * sizeof *values);
    model_forget_weight(m, i);
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
    return s->from_master ? NULL
                          : real_at(m->be, m->weights, s->weight + (s->first - s->kept_first));
}

float *model_own_grad(const struct model *m, int i) {
    const struct share *s = &m->shares[i];
    return m->grads + s->grad + (s->first - s->kept_first);
}

float *model_master(const struct model *m, int i) {
    return m->masters ? m->masters + m->shares[i].state : (float *)model_own_weight(m, i);
}

static void gather(struct model *m, int i) {
    struct backend *be = m->be;
    const struct share *s = &m->shares[i];
    if (s->gathered)
        be->all_gather(be, share_group(be->grid, &m->params->list[i]), model_weight(m, i),
                       s->counts);
}

real_t *model_whole(struct model *m, int i) {
    struct backend *be = m->be;
    const struct share *s = &m->shares[i];
    if (s->staged) {
        stage_weights(m, stage_of(m, i));
    } else if (s->from_master) {
        be->round(be, real_at(be, model_weight(m, i), s->first), model_master(m, i), s->n);
        gather(m, i);
    }
    return model_weight(m, i);
}

void model_set_bias(struct model *m, const float *bias) {
    size_t n = (size_t)m->s.L * (size_t)m->s.E;
    for (size_t k = 0; k < n; k++) m->biased |= bias[k] != 0;
    m->be->upload(m->be, m->bias, bias, n * sizeof *bias);
}

void model_forget_weight(struct model *m, int i) {
    stages_forget(m);
    low_copies_forget(m, i);
}

void model_forget(struct model *m) {
    for (int i = 0; i < m->params->n; i++) model_forget_weight(m, i);
}

void model_spread(struct model *m, int i) {
    if (!m->shares[i].from_master) gather(m, i);
    model_forget_weight(m, i);
}

void model_publish(struct model *m) {
    for (int i = 0; i < m->params->n; i++) {
        if (!m->shares[i].from_master)
            m->be->round(m->be, model_own_weight(m, i), model_master(m, i), m->shares[i].n);
        model_spread(m, i);
    }
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
