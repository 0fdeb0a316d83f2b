#include "config.h"
#include "model/share.h"
#include "base/memory.h"
#include "model/low.h"
#include <string.h>

MPI_Comm share_group(const struct grid *g, const struct param *t) {
    return t->kind == PARAM_DENSE ? g->world : g->dp;
}

static struct share share_of(const struct param *t, const struct grid *g, const struct config *c,
                             enum shard_kind shard) {
    int dense = t->kind == PARAM_DENSE, rank = dense ? g->rank : g->dp_rank,
        size = dense ? g->n_ranks : g->dp_size, whole = shard == SHARD_NONE;
    struct share s = {.frozen = params_match(t, c->train.freeze),
                      .replicated = params_replicated(t->rows, size),
                      .counts = memory_alloc_array((size_t)size, sizeof *s.counts)};
    int64_t first, last;
    for (int r = 0; r < size; r++) {
        params_shard(t->rows, r, size, &first, &last);
        s.counts[r] = (size_t)(last - first) * (size_t)t->cols;
    }
    params_shard(t->rows, rank, size, &first, &last);
    s.norm_first = (size_t)first * (size_t)t->cols;
    s.norm_n = s.replicated && rank > 0 ? 0 : s.counts[rank];
    s.first = whole ? 0 : s.norm_first;
    s.n = whole ? t->n : s.counts[rank];
    s.gathered = !whole && !s.replicated && size > 1;
    s.kept_n = t->n;
    return s;
}

static size_t aligned(size_t n) {
    return (n + PARAMS_ALIGN - 1) / PARAMS_ALIGN * PARAMS_ALIGN;
}

/* One past the tensors that are one matrix with tensor i, the first of them. */
static int matrix_end(const struct params *p, int i) {
    do i++;
    while (i < p->n && p->list[i].joined);
    return i;
}

/* A matrix is staged when one of its tensors is split: it must lie in one piece. */
static void choose_staged(struct share *list, const struct params *p) {
    for (int i = 0, end; i < p->n; i = end) {
        int split = 0;
        end = matrix_end(p, i);
        for (int k = i; k < end; k++) split |= list[k].gathered;
        for (int k = i; k < end && split; k++) {
            struct share *s = &list[k];
            s->staged = 1, s->gathered = 0;
            s->kept_first = s->first, s->kept_n = s->n;
        }
    }
}

static void choose_from_master(struct share *list, const struct params *p, const struct config *c) {
    for (int l = 0; l < c->model.num_hidden_layers; l++)
        if (low_layer(c, l) != LOW_NONE)
            list[p->layers[l].up].from_master = list[p->layers[l].down].from_master = 1;
}

static void place_weights(struct share *list, const struct params *p, struct share_sizes *sizes) {
    size_t room = 0;
    for (int i = 0; i < p->n; i++) {
        int joined = p->list[i].joined && !list[i].staged;
        if (list[i].from_master) {
            if (!list[i].staged && list[i].kept_n > room) room = list[i].kept_n;
            continue;
        }
        list[i].weight = joined ? sizes->weights : aligned(sizes->weights);
        sizes->weights = list[i].weight + list[i].kept_n;
    }
    for (int i = 0; i < p->n; i++)
        if (list[i].from_master) list[i].weight = aligned(sizes->weights);
    if (room) sizes->weights = aligned(sizes->weights) + room;
}

/* Places the gradients of the matrices that are frozen, or of the others: those first. */
static void place_grads(struct share *list, const struct params *p, int frozen,
                        struct share_sizes *sizes) {
    for (int i = 0, end; i < p->n; i = end) {
        int all_frozen = 1;
        end = matrix_end(p, i);
        for (int k = i; k < end; k++) all_frozen &= list[k].frozen;
        if (all_frozen != frozen) continue;
        size_t at = aligned(sizes->trained_grads);
        for (int k = i; k < end; k++) {
            if (list[k].staged) at = aligned(at);
            list[k].grad = at;
            at += list[k].staged && list[k].frozen ? 0 : list[k].kept_n;
        }
        if (p->list[i].kind == PARAM_DENSE) at = aligned(at);
        if (!frozen) sizes->trained_grads = at;
        if (!frozen && p->list[i].kind == PARAM_DENSE) sizes->dense_grads = at;
        if (at > sizes->grads) sizes->grads = at;
    }
}

struct share *shares_new(const struct params *p, const struct grid *g, const struct config *c,
                         enum shard_kind shard, int low_alone, struct share_sizes *sizes) {
    struct share *list = memory_alloc_array((size_t)p->n, sizeof *list);
    memset(sizes, 0, sizeof *sizes);
    for (int i = 0; i < p->n; i++) list[i] = share_of(&p->list[i], g, c, shard);
    if (shard == SHARD_FULL) choose_staged(list, p);
    if (low_alone) choose_from_master(list, p, c);
    place_weights(list, p, sizes);
    for (int frozen = 0; frozen < 2; frozen++) {
        for (int i = 0; i < p->n; i++) {
            if (list[i].frozen != frozen) continue;
            list[i].state = sizes->masters;
            sizes->masters += list[i].n;
            if (!frozen) sizes->moments = sizes->masters;
        }
        place_grads(list, p, frozen, sizes);
    }
    return list;
}

void shares_free(struct share *list, int n) {
    for (int i = 0; i < n; i++) memory_free(list[i].counts);
    memory_free(list);
}
