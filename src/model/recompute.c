/* An array that a layer does not keep lies in a room that such layers share: each writes it in the
 * forward pass, and again right before its backward pass. The last of them finds there what the
 * forward pass left. */
#include "config.h"
#include "model/recompute.h"
#include "base/memory.h"
#include "model/block.h"
#include "model/stash.h"
#include <string.h>

enum { NEVER = -1, FORWARD_ONLY = RECOMPUTE_LAYER + 1, N_ROOMS = 13 };

struct room {
    size_t at;     /* where struct layer_state has the pointer */
    int kept;      /* the most recomputation with which a layer has it for itself */
    size_t bytes;  /* of the largest micro-batch, where a layer has it for itself, */
    size_t shared; /* and of the room that layers share; 0: as many */
    size_t stash;  /* bytes of the array that all layers which keep it share; 0: each has its own */
};
#define AT(member) offsetof(struct layer_state, member)

static size_t z_bytes(const struct model *m, size_t R, int layer) {
    struct backend *be = m->be;
    return low_layer(m->config, layer) != LOW_NONE ? be->low_z_bytes(be, R, m->s.F)
                                                   : R * 2 * (size_t)m->s.F * be->real_bytes;
}

/* Of the layer that has most. */
static size_t most_z_bytes(const struct model *m, size_t R) {
    size_t most = 0;
    for (int l = 0; l < m->s.L; l++)
        if (z_bytes(m, R, l) > most) most = z_bytes(m, R, l);
    return most;
}

/* 0: the layer has none. */
static size_t xn1_low_bytes(const struct model *m, int layer) {
    int low = low_layer(m->config, layer) != LOW_NONE;
    return low ? m->be->low_kept_bytes(m->be, m->capacity, m->s.D) : 0;
}

/* RECOMPUTE_NONE: what memory-bound operations make again. RECOMPUTE_ACTIVATION: what it takes
 * products or attention. NEVER: rows, which a copy of xn2 makes again where nothing is exchanged;
 * from other ranks they could be had again only by another exchange: such rows, and z, lie in the
 * stash of all layers where the backend has one. xn1, where it is kept in eight bits. h, which the
 * experts' backward pass makes again from z. */
static void list_rooms(const struct model *m, size_t R, int layer, int with_gradients,
                       struct room rooms[N_ROOMS]) {
    size_t xn1_low = with_gradients ? xn1_low_bytes(m, layer) : 0;
    const struct shape *s = &m->s;
    size_t N = (size_t)m->capacity, D = (size_t)s->D, F = (size_t)s->F, HK = (size_t)(s->H * s->K),
           width = (size_t)((s->H + 2 * s->G) * s->K), r = m->be->real_bytes, f = sizeof(float);
    int alone = m->be->grid->ep_size == 1;
    const struct room all[N_ROOMS] = {
        {AT(x1), RECOMPUTE_LAYER, N * D * r, 0, 0},
        {AT(xn1), xn1_low ? NEVER : RECOMPUTE_NONE, N * D * r, 0, 0},
        {AT(xn1_low), RECOMPUTE_NONE, xn1_low, 0, 0},
        {AT(rstd1), RECOMPUTE_ACTIVATION, N * f, 0, 0},
        {AT(qkv), RECOMPUTE_ACTIVATION, N * width * r, 0, 0},
        {AT(attended), RECOMPUTE_ACTIVATION, N * HK * r, 0, 0},
        {AT(lse), RECOMPUTE_ACTIVATION, N * (size_t)s->H * f, 0, 0},
        {AT(x2), RECOMPUTE_ACTIVATION, N * D * r, 0, 0},
        {AT(xn2), RECOMPUTE_NONE, N * D * r, 0, 0},
        {AT(rstd2), RECOMPUTE_ACTIVATION, N * f, 0, 0},
        {AT(rows), alone ? NEVER : RECOMPUTE_LAYER, R * D * r, 0,
         stash_rows(m, m->stashed, R) * D * r},
        {AT(z), RECOMPUTE_ACTIVATION, z_bytes(m, R, layer), most_z_bytes(m, R),
         z_bytes(m, stash_rows(m, m->stashed_z, R), layer)},
        {AT(h), NEVER, R * F * r, 0, 0},
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
static void *alloc_room(struct backend *be, const struct room *room, size_t bytes) {
    return (room->at == AT(rows) ? be->alloc_shared : be->alloc)(be, bytes);
}

static void give_rooms(struct model *m, int layer, int kind, const struct room *rooms) {
    for (int i = 0; i < N_ROOMS; i++) {
        const struct room *room = &rooms[i];
        if (room->bytes == 0) continue;
        struct layer_state *common = kind > room->kept ? &m->shared
                                     : room->stash     ? &m->stash
                                                       : NULL;
        void *p = common ? get(common, room) : NULL;
        size_t bytes = common == &m->stash                    ? room->stash
                       : common == &m->shared && room->shared ? room->shared
                                                              : room->bytes;
        if (!p) p = alloc_room(m->be, room, bytes);
        if (common) set(common, room, p);
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

/* How many layers keep rows and z in the stash. */
static void count_stashed(struct model *m, int with_gradients) {
    int whole = m->config->memory.recompute == RECOMPUTE_LAYER;
    if (!with_gradients || !m->be->stashes) return;
    m->stashed = m->s.L;
    m->stashed_z = m->s.L - (whole ? n_recomputed(m) : 0);
    m->stash_need = m->be->alloc(m->be, 2 * sizeof *m->stash_need);
}

static void stash_layer(struct model *m, int layer, size_t rows) {
    struct layer_state *y = &m->layers[layer];
    if (!m->stashed) return;
    m->be->moe_stash(
        m->be, y->moe,
        (struct stash){.before = layer > 0 ? m->layers[layer - 1].moe : NULL,
                       .rows = stash_rows(m, m->stashed, rows),
                       .z = layer < m->s.L - m->stashed_z ? 0 : stash_rows(m, m->stashed_z, rows),
                       .overflow = m->sums + SUMS_OVERFLOW,
                       .need = m->stash_need});
}

void recompute_new_layers(struct model *m, size_t rows, int with_gradients) {
    struct room rooms[N_ROOMS];
    count_stashed(m, with_gradients);
    m->layers = memory_alloc_array((size_t)m->s.L, sizeof *m->layers);
    for (int l = 0; l < m->s.L; l++) {
        int kind = l < n_recomputed(m) ? m->config->memory.recompute : RECOMPUTE_NONE;
        list_rooms(m, rows, l, with_gradients, rooms);
        new_routing(m, l);
        stash_layer(m, l, rows);
        give_rooms(m, l, with_gradients ? kind : FORWARD_ONLY, rooms);
    }
}

void recompute_free_layers(struct model *m) {
    struct backend *be = m->be;
    struct room rooms[N_ROOMS];
    list_rooms(m, 0, /*layer=*/0, /*with_gradients=*/0, rooms);
    for (int l = 0; l < m->s.L; l++) {
        struct layer_state *y = &m->layers[l];
        for (int i = 0; i < N_ROOMS; i++)
            if (get(y, &rooms[i]) != get(&m->shared, &rooms[i]) &&
                get(y, &rooms[i]) != get(&m->stash, &rooms[i]))
                be->release(be, get(y, &rooms[i]));
        be->release(be, y->routing.probs);
        be->release(be, y->routing.lse);
        be->release(be, y->routing.ids);
        be->release(be, y->routing.p);
        be->moe_free(be, y->moe);
    }
    for (int i = 0; i < N_ROOMS; i++) {
        be->release(be, get(&m->shared, &rooms[i]));
        be->release(be, get(&m->stash, &rooms[i]));
    }
    be->release(be, m->stash_need);
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
    if (whole)
        attention_forward(m, layer);
    else if (y->xn1_low)
        be->low_keep(be, y->xn1_low, y->xn1, N, D);
    be->add_norm(be, y->x2, y->xn2, y->rstd2, whole ? y->x1 : y->x2, whole ? m->delta : NULL,
                 model_weight(m, p->norm2), m->s.eps, N, D);
    return whole;
}

void recompute_layer(struct model *m, int layer) {
    struct backend *be = m->be;
    struct layer_state *y = &m->layers[layer];
    int lacks_z = layer < n_recomputed(m) - 1 && make_again(m, layer);
    /* The last layer's are still there. */
    int lacks_rows = (be->grid->ep_size == 1 || be->rows_again) && layer < m->s.L - 1;
    /* The way from a token's array to its experts' rows is the same for the token as for the
     * gradient of its result. */
    if (lacks_rows) be->moe_combine_backward(be, y->moe, y->rows, y->xn2, m->N);
    eight_bits_begin(m, layer);
    if (lacks_z || (lacks_rows && be->rows_again))
        be->experts_up(be, y->moe, y->z, y->h, y->rows,
                       model_operand(m, m->params->layers[layer].up));
    eight_bits_end(m);
}
