#include "config.h"
#include "model/low_copies.h"
#include "base/memory.h"
#include "model/block.h"

enum { MATRICES = 4 }; /* of a layer */

/* The first tensors of a layer's matrices: projections into and out of attention, the experts' two.
 */
static void list_matrices(const struct model *m, int layer, int list[MATRICES]) {
    const struct layer_params *p = &m->params->layers[layer];
    list[0] = p->q, list[1] = p->o, list[2] = p->up, list[3] = p->down;
}

struct low_matrix low_matrix_of(const struct model *m, int first) {
    const struct params *p = m->params;
    const struct param *t = &p->list[first];
    int64_t rows = t->rows;
    for (int i = first + 1; i < p->n && p->list[i].joined; i++) rows += p->list[i].rows;
    int64_t N = t->kind == PARAM_EXPERT ? t->dims[1] : rows;
    return (struct low_matrix){.n = (int)(rows / N), .N = (int)N, .K = (int)t->cols};
}

static size_t bytes_of(const struct model *m, int first) {
    struct low_matrix w = low_matrix_of(m, first);
    return m->be->low_bytes(m->be, w.n, w.N, w.K);
}

void low_copies_new(struct model *m) {
    int list[MATRICES];
    void *rooms[ROOMS][MATRICES] = {0};
    size_t n = (size_t)m->params->n;
    list_matrices(m, 0, list);
    if (low_recipe(m->config) == LOW_NONE || bytes_of(m, list[0]) == 0) return;
    m->low_copies = memory_alloc_array(n, sizeof *m->low_copies);
    m->low_stale = memory_alloc_array(n, sizeof *m->low_stale);
    for (int l = 0; l < m->s.L; l++) {
        list_matrices(m, l, list);
        for (int k = 0; k < MATRICES && low_layer(m->config, l) != LOW_NONE; k++) {
            void *of_its_own = NULL,
                 **room = m->shares[list[k]].staged ? &rooms[l % ROOMS][k] : &of_its_own;
            if (!*room) *room = m->be->alloc(m->be, bytes_of(m, list[k]));
            m->low_copies[list[k]] = *room;
        }
    }
    model_forget(m);
}

void low_copies_free(struct model *m) {
    for (int i = 0; i < m->params->n && m->low_copies; i++) {
        void *copies = m->low_copies[i];
        for (int k = i; k < m->params->n; k++) /* of the layers that have the same room */
            if (m->low_copies[k] == copies) m->low_copies[k] = NULL;
        m->be->release(m->be, copies);
    }
    memory_free(m->low_copies);
    memory_free(m->low_stale);
}

void low_copies_forget(struct model *m, int i) {
    while (m->params->list[i].joined) i--;
    if (m->low_copies) m->low_stale[i] = 1;
}

static void make(struct model *m, int i, const real_t *weights) {
    struct low_matrix w = low_matrix_of(m, i);
    m->be->low_weights(m->be, m->low_copies[i], weights, w.n, w.N, w.K);
    m->low_stale[i] = 0;
}

static int to_make(const struct model *m, int i) {
    return m->low_copies[i] && m->low_stale[i] && !m->shares[i].staged;
}

void low_copies_make(struct model *m) {
    int i = 0, n = m->low_copies ? m->params->n : 0;
    while (i < n && !to_make(m, i)) i++;
    if (i == n) return;
    enum clock before = m->be->clock(m->be, CLOCK_OPTIMIZER);
    for (; i < n; i++)
        if (to_make(m, i)) make(m, i, model_whole(m, i));
    m->be->clock(m->be, before);
}

void low_copies_of_stage(struct model *m, int layer) {
    int list[MATRICES];
    list_matrices(m, layer, list);
    for (int k = 0; k < MATRICES && m->low_copies; k++)
        if (m->low_copies[list[k]] && m->shares[list[k]].staged)
            make(m, list[k], model_weight(m, list[k]));
}
