#include "config.h"
#include "model/share.h"
#include "base/memory.h"

MPI_Comm share_group(const struct grid *g, const struct param *t) {
    return t->kind == PARAM_DENSE ? g->world : g->dp;
}

static struct share share_of(const struct param *t, const struct grid *g, const struct config *c) {
    int dense = t->kind == PARAM_DENSE, rank = dense ? g->rank : g->dp_rank,
        size = dense ? g->n_ranks : g->dp_size, whole = c->parallelism.shard == SHARD_NONE;
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
    return s;
}

struct share *shares_new(const struct params *p, const struct grid *g, const struct config *c,
                         size_t *n_state) {
    struct share *list = memory_alloc_array((size_t)p->n, sizeof *list);
    *n_state = 0;
    for (int i = 0; i < p->n; i++) {
        list[i] = share_of(&p->list[i], g, c);
        list[i].state = *n_state;
        *n_state += list[i].n;
    }
    return list;
}

void shares_free(struct share *list, int n) {
    for (int i = 0; i < n; i++) memory_free(list[i].counts);
    memory_free(list);
}
