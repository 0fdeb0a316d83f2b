#include "config.h"
#include "model/kept.h"
#include "base/memory.h"
#include <assert.h>

struct kept_all {
    struct backend *be;
    int L, n_places, room;
    real_t **kv;           /* [L] of [n_places, room, 2 G K] */
    int *length;           /* [n_places] */
    int32_t *place, *past; /* [documents] of the batch being made */
};

static size_t row_bytes(const struct shape *s, const struct backend *be) {
    return 2 * (size_t)s->G * (size_t)s->K * be->real_bytes;
}

size_t kept_bytes(const struct shape *s, const struct backend *be, int room) {
    return (size_t)s->L * (size_t)room * row_bytes(s, be);
}

struct kept_all *kept_new(const struct shape *s, struct backend *be, int n_places, int room,
                          int capacity) {
    struct kept_all *k = memory_alloc(sizeof *k);
    k->be = be, k->L = s->L, k->n_places = n_places, k->room = room;
    k->kv = memory_alloc_array((size_t)s->L, sizeof *k->kv);
    for (int l = 0; l < s->L; l++)
        k->kv[l] = be->alloc(be, (size_t)n_places * (size_t)room * row_bytes(s, be));
    k->length = memory_alloc_array((size_t)n_places, sizeof *k->length);
    k->place = memory_alloc_array((size_t)capacity, sizeof *k->place);
    k->past = memory_alloc_array((size_t)capacity, sizeof *k->past);
    return k;
}

void kept_free(struct kept_all *k) {
    if (!k) return;
    for (int l = 0; l < k->L; l++) k->be->release(k->be, k->kv[l]);
    memory_free(k->kv);
    memory_free(k->length);
    memory_free(k->place);
    memory_free(k->past);
    memory_free(k);
}

void kept_clear(struct kept_all *k, int place) {
    k->length[place] = 0;
}

int kept_length(const struct kept_all *k, int place) {
    return k->length[place];
}

void kept_append(struct kept_all *k, struct batch *b, int place, const int32_t *tokens, int n) {
    int first = b->n, d = b->n_documents;
    assert(n > 0 && k->length[place] + n <= k->room);
    for (int i = first; i < first + n; i++) b->targets[i] = -100;
    batch_append(b, tokens, b->targets + first, NULL, n);
    for (int i = 0; i < n; i++) b->positions[first + i] = k->length[place] + i;
    k->place[d] = place, k->past[d] = k->length[place];
}

struct kept kept_layer(const struct kept_all *k, int layer) {
    return (struct kept){.kv = k->kv[layer], .room = k->room, .place = k->place, .past = k->past};
}

void kept_advance(struct kept_all *k, const struct batch *b) {
    for (int d = 0; d < b->n_documents; d++)
        k->length[k->place[d]] += b->cu_seqlens[d + 1] - b->cu_seqlens[d];
}
