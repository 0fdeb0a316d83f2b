#include "config.h"
#include "model/model.h"
#include "base/memory.h"
#include "grid/watchdog.h"
#include "model/balance.h"
#include "model/block.h"
#include <assert.h>
#include <string.h>

static void layer_new(struct model *m, int layer, size_t rows) {
    struct backend *be = m->be;
    struct layer_state *y = &m->layers[layer];
    const struct shape *s = &m->s;
    size_t N = (size_t)m->capacity, D = (size_t)s->D, E = (size_t)s->E, A = (size_t)s->A,
           HK = (size_t)(s->H * s->K), r = be->real_bytes, first = (size_t)layer * E;
    y->x1 = be->alloc(be, N * D * r);
    y->xn1 = be->alloc(be, N * D * r);
    y->rstd1 = be->alloc(be, N * sizeof(float));
    y->qkv = be->alloc(be, N * (size_t)((s->H + 2 * s->G) * s->K) * r);
    y->attended = be->alloc(be, N * HK * r);
    y->lse = be->alloc(be, N * (size_t)s->H * sizeof(float));
    y->x2 = be->alloc(be, N * D * r);
    y->xn2 = be->alloc(be, N * D * r);
    y->rstd2 = be->alloc(be, N * sizeof(float));
    y->routing.probs = be->alloc(be, N * E * sizeof(float));
    y->routing.lse = be->alloc(be, N * sizeof(float));
    y->routing.ids = be->alloc(be, N * A * sizeof(int32_t));
    y->routing.p = be->alloc(be, N * A * sizeof(float));
    y->routing.counts = m->counts + first;
    y->routing.P = m->P + first;
    y->routing.entropy = m->entropy + layer;
    y->routing.z = m->z + layer;
    y->moe = be->moe_new(be, m->moe);
    y->rows = be->alloc(be, rows * D * r);
    y->z = be->alloc(be, rows * 2 * (size_t)s->F * r);
    y->h = be->alloc(be, rows * (size_t)s->F * r);
}

static void layer_free(struct backend *be, struct layer_state *y) {
    void *const all[] = {y->x1,        y->xn1,           y->rstd1,       y->qkv,
                         y->attended,  y->lse,           y->x2,          y->xn2,
                         y->rstd2,     y->routing.probs, y->routing.lse, y->routing.ids,
                         y->routing.p, y->rows,          y->z,           y->h};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) be->release(be, all[i]);
    be->moe_free(be, y->moe);
}

struct model *model_new(const struct config *c, struct backend *be, int capacity,
                        int with_gradients) {
    struct model *m = memory_alloc(sizeof *m);
    struct shape s = shape_of(c);
    m->config = c, m->be = be, m->s = s, m->capacity = capacity;
    m->attention = (struct attention_shape){.H = s.H, .G = s.G, .K = s.K, .window = s.window};
    m->moe = (struct moe_shape){.D = s.D, .F = s.F, .E = s.E, .A = s.A, .capacity = capacity};
    m->params = params_new(&s, be->grid, c);
    size_t N = (size_t)capacity, D = (size_t)s.D, L = (size_t)s.L, E = (size_t)s.E,
           r = be->real_bytes, rows = be->moe_rows(be, m->moe), HK = (size_t)(s.H * s.K);
    m->weights = be->alloc(be, m->params->size * r);
    m->bias = be->alloc(be, L * E * sizeof *m->bias);
    m->counts = memory_alloc_array(L * E + 1, sizeof *m->counts);
    m->P = memory_alloc_array(L * E, sizeof *m->P);
    m->entropy = memory_alloc_array(L, sizeof *m->entropy);
    m->z = memory_alloc_array(L, sizeof *m->z);
    m->balance = memory_alloc_array(L * E, sizeof *m->balance);
    m->counts_sum = memory_alloc_array(L * E, sizeof *m->counts_sum);
    m->entropy_sum = memory_alloc_array(L, sizeof *m->entropy_sum);
    m->layers = memory_alloc_array(L, sizeof *m->layers);
    for (int l = 0; l < s.L; l++) layer_new(m, l, rows);
    m->tokens = be->alloc(be, N * sizeof(int32_t));
    m->targets = be->alloc(be, N * sizeof(int32_t));
    m->positions = be->alloc(be, N * sizeof(int32_t));
    m->target_weights = be->alloc(be, N * sizeof(float));
    m->x = be->alloc(be, N * D * r);
    m->xn = be->alloc(be, N * D * r);
    m->delta = be->alloc(be, N * D * r);
    m->rstd = be->alloc(be, N * sizeof(float));
    m->logits = be->alloc(be, N * E * sizeof(float));
    m->y = be->alloc(be, rows * D * r);
    if (!with_gradients) return m;
    m->grads = be->alloc(be, m->params->size * sizeof(float));
    m->dx = be->alloc(be, N * D * r);
    m->dxn = be->alloc(be, N * D * r);
    m->dattended = be->alloc(be, N * HK * r);
    m->dqkv = be->alloc(be, N * (size_t)((s.H + 2 * s.G) * s.K) * r);
    m->dp = be->alloc(be, N * (size_t)s.A * sizeof(float));
    m->dp_rows = be->alloc(be, rows * sizeof(float));
    return m;
}

void model_free(struct model *m) {
    if (!m) return;
    struct backend *be = m->be;
    void *const device[] = {m->weights,   m->bias,           m->grads, m->tokens, m->targets,
                            m->positions, m->target_weights, m->x,     m->xn,     m->delta,
                            m->logits,    m->rstd,           m->y,     m->dx,     m->dxn,
                            m->dattended, m->dqkv,           m->dp,    m->dp_rows};
    for (int l = 0; l < m->s.L; l++) layer_free(be, &m->layers[l]);
    for (size_t i = 0; i < sizeof device / sizeof *device; i++) be->release(be, device[i]);
    void *const host[] = {m->counts,  m->P,          m->entropy,     m->z,
                          m->balance, m->counts_sum, m->entropy_sum, m->layers};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) memory_free(host[i]);
    params_free(m->params);
    memory_free(m);
}

void model_init(struct model *m, uint64_t seed) {
    float *start = memory_alloc_array(m->params->size, sizeof *start);
    params_init(m->params, seed, start);
    m->be->to_real(m->be, m->weights, start, m->params->size);
    memory_free(start);
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
}

void model_forward(struct model *m, const struct batch *b) {
    struct backend *be = m->be;
    const struct params *p = m->params;
    double start = MPI_Wtime(), exchanged = be->exchange_s;
    watchdog_phase(WATCHDOG_FORWARD, -1);
    load_batch(m, b);
    int N = m->N, D = m->s.D;
    be->embed(be, m->x, model_weight(m, p->embed), m->tokens, N, D);
    const real_t *x = m->x, *delta = NULL;
    for (int l = 0; l < m->s.L; l++) {
        struct layer_state *y = &m->layers[l];
        watchdog_phase(WATCHDOG_FORWARD, l);
        be->add_norm(be, y->x1, y->xn1, y->rstd1, x, delta, model_weight(m, p->layers[l].norm1),
                     m->s.eps, N, D);
        attention_forward(m, l);
        be->add_norm(be, y->x2, y->xn2, y->rstd2, y->x1, m->delta,
                     model_weight(m, p->layers[l].norm2), m->s.eps, N, D);
        experts_forward(m, l);
        x = y->x2, delta = m->delta;
    }
    be->add_norm(be, m->x, m->xn, m->rstd, x, delta, model_weight(m, p->norm), m->s.eps, N, D);
    m->forward_s += MPI_Wtime() - start - (be->exchange_s - exchanged);
}

double model_loss(struct model *m) {
    double start = MPI_Wtime();
    double loss = m->be->head(m->be, NULL, NULL, m->xn, model_weight(m, m->params->head),
                              m->targets, m->target_weights, 1, m->N, m->s.V, m->s.D);
    m->forward_s += MPI_Wtime() - start;
    return loss;
}

void model_logits(struct model *m, real_t *logits) {
    m->be->matmul(m->be, logits, m->xn, model_weight(m, m->params->head), m->N, m->s.V, m->s.D);
}

void model_backward(struct model *m, double loss_scale, double balance_weight) {
    struct backend *be = m->be;
    const struct params *p = m->params;
    int N = m->N, D = m->s.D, L = m->s.L, E = m->s.E;
    double start = MPI_Wtime(), exchanged = be->exchange_s;
    watchdog_phase(WATCHDOG_BACKWARD, -1);
    for (int l = 0; l < L; l++) m->entropy_sum[l] += m->entropy[l];
    for (int i = 0; i < L * E; i++) m->counts_sum[i] += m->counts[i];
    struct balance b = balance_losses(m, balance_weight, m->balance);
    m->loss_sum += be->head(be, m->dxn, model_grad(m, p->head), m->xn, model_weight(m, p->head),
                            m->targets, m->target_weights, (float)loss_scale, N, m->s.V, D);
    m->aux_sum += b.aux * balance_weight;
    m->z_sum += b.z * balance_weight;
    be->zero(be, m->dx, (size_t)N * (size_t)D * be->real_bytes);
    be->norm_backward(be, m->dx, model_grad(m, p->norm), m->dxn, m->x, m->rstd,
                      model_weight(m, p->norm), N, D);
    for (int l = L - 1; l >= 0; l--) {
        struct layer_state *y = &m->layers[l];
        watchdog_phase(WATCHDOG_BACKWARD, l);
        experts_backward(m, l, b.dprobs + (size_t)l * (size_t)E, b.dz);
        be->norm_backward(be, m->dx, model_grad(m, p->layers[l].norm2), m->dxn, y->x2, y->rstd2,
                          model_weight(m, p->layers[l].norm2), N, D);
        attention_backward(m, l);
        be->norm_backward(be, m->dx, model_grad(m, p->layers[l].norm1), m->dxn, y->x1, y->rstd1,
                          model_weight(m, p->layers[l].norm1), N, D);
    }
    be->embed_backward(be, model_grad(m, p->embed), m->dx, m->tokens, N, D, m->s.V);
    m->backward_s += MPI_Wtime() - start - (be->exchange_s - exchanged);
}

void model_reset(struct model *m) {
    size_t L = (size_t)m->s.L, E = (size_t)m->s.E;
    m->be->zero(m->be, m->grads, m->params->size * sizeof(float));
    memset(m->counts_sum, 0, L * E * sizeof *m->counts_sum);
    memset(m->entropy_sum, 0, L * sizeof *m->entropy_sum);
    m->loss_sum = m->aux_sum = m->z_sum = m->forward_s = m->backward_s = 0;
}
