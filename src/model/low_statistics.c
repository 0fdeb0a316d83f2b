#include "config.h"
#include "model/low_statistics.h"
#include "base/memory.h"
#include "model/block.h"
#include "model/low_copies.h"
#include <math.h>

/* Doubles of all layers. */
static size_t n_sums(const struct model *m) {
    return (size_t)m->s.L * N_LOW_KINDS * N_LOW_SUMS;
}

int low_statistics_wanted(const struct config *c) {
    return c->precision.statistics_every_n_steps > 0 && low_recipe(c) != LOW_NONE;
}

void low_statistics_new(struct model *m) {
    if (low_statistics_wanted(m->config))
        m->low_sums = m->be->alloc(m->be, n_sums(m) * sizeof *m->low_sums);
}

void low_statistics_free(struct model *m) {
    m->be->release(m->be, m->low_sums);
}

void low_statistics_reset(struct model *m) {
    if (m->sampled) m->be->zero(m->be, m->low_sums, n_sums(m) * sizeof *m->low_sums);
}

static void take(struct model *m, int layer, enum low_kind kind, struct low_operand o) {
    m->be->low_statistics(m->be, m->low_sums + (layer * N_LOW_KINDS + (int)kind) * N_LOW_SUMS, o);
}

static void take_tokens(struct model *m, int layer, enum low_kind kind, const real_t *x, int cols) {
    take(m, layer, kind,
         (struct low_operand){.place = LOW_TOKENS, .x = x, .rows = m->N, .cols = cols});
}

static void take_rows(struct model *m, int layer, enum low_kind kind, enum low_place place,
                      const real_t *x) {
    const struct layer_state *y = &m->layers[layer];
    take(m, layer, kind, (struct low_operand){.place = place, .x = x, .h = y->h, .m = y->moe});
}

/* Once of all ranks that have the same ones; those that are not kept are made, which is collective.
 */
static void take_weights(struct model *m, int layer, enum low_kind kind, int param) {
    struct low_matrix s = low_matrix_of(m, param);
    const struct grid *g = m->be->grid;
    const real_t *w = m->shares[param].staged ? model_weight(m, param) : model_whole(m, param);
    int first = m->params->list[param].kind == PARAM_DENSE ? g->rank == 0 : g->dp_rank == 0;
    if (first)
        take(
            m, layer, kind,
            (struct low_operand){.place = LOW_WEIGHTS, .x = w, .n = s.n, .rows = s.N, .cols = s.K});
}

static void take_all_weights(struct model *m, int layer) {
    const struct layer_params *p = &m->params->layers[layer];
    take_weights(m, layer, LOW_QKV_WEIGHT, p->q);
    take_weights(m, layer, LOW_O_WEIGHT, p->o);
    take_weights(m, layer, LOW_UP_WEIGHT, p->up);
    take_weights(m, layer, LOW_DOWN_WEIGHT, p->down);
}

/* 1: this layer's operands are to be taken now, in its recipe. */
static int begins(struct model *m, int layer) {
    if (!m->sampled) return 0;
    eight_bits_begin(m, layer);
    return m->be->low != LOW_NONE;
}

void low_statistics_forward(struct model *m, int layer) {
    const struct layer_state *y = &m->layers[layer];
    if (!begins(m, layer)) return;
    take_tokens(m, layer, LOW_QKV_INPUT, y->xn1, m->s.D);
    take_tokens(m, layer, LOW_O_INPUT, y->attended, m->s.H * m->s.K);
    take_rows(m, layer, LOW_UP_INPUT, LOW_ROWS, y->rows);
    take_rows(m, layer, LOW_DOWN_INPUT, LOW_H, y->z);
    if (!m->has_grads) take_all_weights(m, layer);
    eight_bits_end(m);
}

void low_statistics_experts(struct model *m, int layer) {
    if (!m->sampled || m->be->low == LOW_NONE) return;
    take_rows(m, layer, LOW_DOWN_GRADIENT, LOW_RESULTS, m->y);
    take_rows(m, layer, LOW_UP_GRADIENT, LOW_DZ, m->layers[layer].z);
}

void low_statistics_attention(struct model *m, int layer) {
    if (!begins(m, layer)) return;
    take_tokens(m, layer, LOW_O_GRADIENT, m->dx, m->s.D);
    take_tokens(m, layer, LOW_QKV_GRADIENT, m->dqkv, qkv_width(&m->s));
    eight_bits_end(m);
}

/* Of one kind in one layer; figure[i] for each i. */
static void figures_of(const double *sums, double figure[N_LOW_FIGURES]) {
    double values = sums[LOW_VALUES];
    int some = sums[LOW_INVERSE] > 0; /* a block that is finite */
    figure[LOW_SHARE_UNDERFLOW] = values > 0 ? sums[LOW_UNDERFLOWS] / values : NAN;
    figure[LOW_SHARE_LARGEST] = values > 0 ? sums[LOW_LARGEST] / values : NAN;
    figure[LOW_SHARE_NONFINITE] = values > 0 ? sums[LOW_NONFINITE] / values : NAN;
    figure[LOW_MOST] = some ? sums[LOW_AMAX] : NAN;
    figure[LOW_LEAST_SCALE] = some ? (double)(float)(1 / sums[LOW_INVERSE]) : NAN;
    figure[LOW_MOST_SCALE] = some ? sums[LOW_SCALE] : NAN;
    figure[LOW_ERROR] = some ? sqrt(sums[LOW_ERROR2] / sums[LOW_SQUARES]) : NAN;
}

void low_statistics_read(struct model *m, struct low_figures *f) {
    const struct grid *g = m->be->grid;
    size_t n = n_sums(m);
    double *mine = memory_alloc_array(n, sizeof *mine), *sum = memory_alloc_array(n, sizeof *sum),
           *most = memory_alloc_array(n, sizeof *most);
    m->be->download(m->be, mine, m->low_sums, n * sizeof *mine);
    MPI_Reduce(mine, sum, (int)n, MPI_DOUBLE, MPI_SUM, 0, g->world);
    MPI_Reduce(mine, most, (int)n, MPI_DOUBLE, MPI_MAX, 0, g->world);
    for (size_t i = 0; i < n / N_LOW_SUMS && g->rank == 0; i++) {
        double *sums = sum + i * N_LOW_SUMS, figure[N_LOW_FIGURES];
        for (int k = LOW_AMAX; k < N_LOW_SUMS; k++) sums[k] = most[i * N_LOW_SUMS + (size_t)k];
        f->values[i] = (int64_t)sums[LOW_VALUES];
        figures_of(sums, figure);
        for (int k = 0; k < N_LOW_FIGURES; k++) f->figures[k][i] = figure[k];
    }
    memory_free(mine);
    memory_free(sum);
    memory_free(most);
}

struct low_figures low_figures_new(int n_layers) {
    size_t n = (size_t)n_layers * N_LOW_KINDS;
    struct low_figures f = {.values = memory_alloc_array(n, sizeof *f.values)};
    for (int k = 0; k < N_LOW_FIGURES; k++)
        f.figures[k] = memory_alloc_array(n, sizeof *f.figures[k]);
    return f;
}

void low_figures_free(struct low_figures *f) {
    memory_free(f->values);
    for (int k = 0; k < N_LOW_FIGURES; k++) memory_free(f->figures[k]);
}
