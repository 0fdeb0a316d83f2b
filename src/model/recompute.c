/* An array that a layer does not keep lies in a room that such layers share: each writes it in the
 * forward pass, and again right before its backward pass. The last of them finds there what the
 * forward pass left. */
#include "config.h"
#include "model/recompute.h"
#include "base/memory.h"
#include "model/block.h"
#include <string.h>

enum { NEVER = -1, FORWARD_ONLY = RECOMPUTE_LAYER + 1, N_ROOMS = 12 };

struct room {
    size_t at;    /* where struct layer_state has the pointer */
    int kept;     /* the most recomputation with which a layer has it for itself */
    size_t bytes; /* of the largest micro-batch */
};
#define AT(member) offsetof(struct layer_state, member)

/* RECOMPUTE_NONE: what memory-bound operations make again. RECOMPUTE_ACTIVATION: what it takes
 * products or attention. NEVER: rows, which a copy of xn2 makes again where nothing is exchanged;
 * from other ranks they could be had again only by another exchange. h, which the experts' backward
 * pass makes again from z. */
static void list_rooms(const struct model *m, size_t R, struct room rooms[N_ROOMS]) {
    const struct shape *s = &m->s;
    size_t N = (size_t)m->capacity, D = (size_t)s->D, F = (size_t)s->F, HK = (size_t)(s->H * s->K),
           width = (size_t)((s->H + 2 * s->G) * s->K), r = m->be->real_bytes, f = sizeof(float);
    int alone = m->be->grid->ep_size == 1;
    const struct room all[N_ROOMS] = {
        {AT(x1), RECOMPUTE_LAYER, N * D * r},
        {AT(xn1), RECOMPUTE_NONE, N * D * r},
        {AT(rstd1), RECOMPUTE_ACTIVATION, N * f},
        {AT(qkv), RECOMPUTE_ACTIVATION, N * width * r},
        {AT(attended), RECOMPUTE_ACTIVATION, N * HK * r},
        {AT(lse), RECOMPUTE_ACTIVATION, N * (size_t)s->H * f},
        {AT(x2), RECOMPUTE_ACTIVATION, N * D * r},
        {AT(xn2), RECOMPUTE_NONE, N * D * r},
        {AT(rstd2), RECOMPUTE_ACTIVATION, N * f},
        {AT(rows), alone ? NEVER : RECOMPUTE_LAYER, R * D * r},
        {AT(z), RECOMPUTE_ACTIVATION, R * 2 * F * r},
        {AT(h), NEVER, R * F * r},
    };
    memcpy(rooms, all, sizeof all);
}

static void *get(const struct layer_state *y, const struct room *room) {
    void *p;
    memcpy(&p, (const char *)y + room->at, sizeof p);
    return p;
}

static void set(struct layer_state *y, const struct room *room, void *p) {
    memcpy((char *)y + room->at, &p, sizeof p);
}

/* Layers [0, n) recompute. */
static int n_recomputed(const struct model *m) {
    int64_t n = m->config->memory.recompute_layers;
    if (m->config->memory.recompute == RECOMPUTE_NONE) return 0;
    return n ? (int)n : m->s.L;
}

/* Rows come from other ranks. */
static void *alloc_room(struct backend *be, const struct room *room) {
    return (room->at == AT(rows) ? be->alloc_shared : be->alloc)(be, room->bytes);
}

static void give_rooms(struct model *m, int layer, int kind, const struct room *rooms) {
    for (int i = 0; i < N_ROOMS; i++) {
        const struct room *room = &rooms[i];
        void *p = kind <= room->kept ? NULL : get(&m->shared, room);
        if (!p) p = alloc_room(m->be, room);
        if (kind > room->kept) set(&m->shared, room, p);
        set(&m->layers[layer], room, p);
    }
}

static void new_routing(struct model *m, int layer) {
    struct backend *be = m->be;
    struct layer_state *y = &m->layers[layer];
    size_t N = (size_t)m->capacity, E = (size_t)m->s.E, A = (size_t)m->s.A,
           first = (size_t)layer * E;
    y->routing.probs = be->alloc(be, N * E * sizeof(float));
    y->routing.lse = be->alloc(be, N * sizeof(float));
    y->routing.ids = be->alloc(be, N * A * sizeof(int32_t));
    y->routing.p = be->alloc(be, N * A * sizeof(float));
    y->routing.counts = m->counts + first;
    y->routing.P = m->P + first;
    y->routing.entropy = m->entropy + layer;
    y->routing.z = m->z + layer;
    y->moe = be->moe_new(be, m->moe);
}

void recompute_new_layers(struct model *m, size_t rows, int with_gradients) {
    struct room rooms[N_ROOMS];
    list_rooms(m, rows, rooms);
    m->layers = memory_alloc_array((size_t)m->s.L, sizeof *m->layers);
    for (int l = 0; l < m->s.L; l++) {
        int kind = l < n_recomputed(m) ? m->config->memory.recompute : RECOMPUTE_NONE;
        new_routing(m, l);
        give_rooms(m, l, with_gradients ? kind : FORWARD_ONLY, rooms);
    }
}

void recompute_free_layers(struct model *m) {
    struct backend *be = m->be;
    struct room rooms[N_ROOMS];
    list_rooms(m, 0, rooms);
    for (int l = 0; l < m->s.L; l++) {
        struct layer_state *y = &m->layers[l];
        for (int i = 0; i < N_ROOMS; i++)
            if (get(y, &rooms[i]) != get(&m->shared, &rooms[i])) be->release(be, get(y, &rooms[i]));
        be->release(be, y->routing.probs);
        be->release(be, y->routing.lse);
        be->release(be, y->routing.ids);
        be->release(be, y->routing.p);
        be->moe_free(be, y->moe);
    }
    for (int i = 0; i < N_ROOMS; i++) be->release(be, get(&m->shared, &rooms[i]));
    memory_free(m->layers);
}

/* The stream and attention of a layer; true if its z is gone, too. */
static int make_again(struct model *m, int layer) {
    struct backend *be = m->be;
    struct layer_state *y = &m->layers[layer];
    const struct layer_params *p = &m->params->layers[layer];
    int N = m->N, D = m->s.D, whole = m->config->memory.recompute == RECOMPUTE_LAYER;
    be->add_norm(be, y->x1, y->xn1, y->rstd1, y->x1, NULL, model_weight(m, p->norm1), m->s.eps, N,
                 D);
    if (whole) attention_forward(m, layer);
    be->add_norm(be, y->x2, y->xn2, y->rstd2, whole ? y->x1 : y->x2, whole ? m->delta : NULL,
                 model_weight(m, p->norm2), m->s.eps, N, D);
    return whole;
}

void recompute_layer(struct model *m, int layer) {
    struct backend *be = m->be;
    struct layer_state *y = &m->layers[layer];
    int lacks_z = layer < n_recomputed(m) - 1 && make_again(m, layer);
    /* On one rank the way from a token's array to its experts' rows is the same for the token as
     * for the gradient of its result. */
    if (be->grid->ep_size == 1 && layer < m->s.L - 1)
        be->moe_combine_backward(be, y->moe, y->rows, y->xn2, m->N);
    if (lacks_z)
        be->experts_up(be, y->moe, y->z, y->h, y->rows,
                       model_weight(m, m->params->layers[layer].up));
}
