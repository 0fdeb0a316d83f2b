#include "config.h"
#include "model/low_copies.h"
#include "base/memory.h"
#include "model/block.h"

enum { MATRICES = 4 }; /* of a layer: projections into and out of attention, the experts' two */

struct matrix {
    int param, n, N, K; /* w[n, N, K] */
};

static struct matrix matrix_of(const struct model *m, int layer, int which) {
    const struct layer_params *p = &m->params->layers[layer];
    const struct shape *s = &m->s;
    int experts = s->E / m->be->grid->ep_size;
    const struct matrix all[MATRICES] = {{p->q, 1, qkv_width(s), s->D},
                                         {p->o, 1, s->D, s->H * s->K},
                                         {p->up, experts, 2 * s->F, s->D},
                                         {p->down, experts, s->D, s->F}};
    return all[which];
}

static int staged(const struct model *m, struct matrix w) {
    return m->shares[w.param].staged;
}

static size_t bytes_of(const struct model *m, struct matrix w) {
    return m->be->low_bytes(m->be, w.n, w.N, w.K);
}

static void **place_of(const struct model *m, int layer, int which) {
    int slot = staged(m, matrix_of(m, layer, which)) ? stage_layer(layer) % ROOMS : ROOMS + layer;
    return m->low_copies + slot * MATRICES + which;
}

static int n_places(const struct model *m) {
    return (ROOMS + m->s.L) * MATRICES;
}

void low_copies_new(struct model *m) {
    if (low_recipe(m->config) == LOW_NONE || bytes_of(m, matrix_of(m, 0, 0)) == 0) return;
    m->low_copies = memory_alloc_array((size_t)n_places(m), sizeof *m->low_copies);
    for (int l = 0; l < m->s.L; l++)
        for (int k = 0; k < MATRICES && low_layer(m->config, l) != LOW_NONE; k++) {
            void **place = place_of(m, l, k);
            if (!*place) *place = m->be->alloc(m->be, bytes_of(m, matrix_of(m, l, k)));
        }
    low_copies_forget(m);
}

int low_copies_n(const struct model *m) {
    return m->low_copies ? n_places(m) : 0;
}

void low_copies_free(struct model *m) {
    for (int i = 0; i < low_copies_n(m); i++) m->be->release(m->be, m->low_copies[i]);
    memory_free(m->low_copies);
}

void low_copies_forget(struct model *m) {
    m->low_stale = 1;
}

static void make(struct model *m, int layer, int of_stage) {
    for (int k = 0; k < MATRICES && low_layer(m->config, layer) != LOW_NONE; k++) {
        struct matrix w = matrix_of(m, layer, k);
        if (staged(m, w) == of_stage)
            m->be->low_weights(m->be, *place_of(m, layer, k), model_weight(m, w.param), w.n, w.N,
                               w.K);
    }
}

void low_copies_make(struct model *m) {
    if (!m->low_copies || !m->low_stale) return;
    for (int l = 0; l < m->s.L; l++) make(m, l, /*of_stage=*/0);
    m->low_stale = 0;
}

void low_copies_of_stage(struct model *m, int layer) {
    if (m->low_copies) make(m, layer, /*of_stage=*/1);
}
