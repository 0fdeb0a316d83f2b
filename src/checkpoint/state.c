#include "config.h"
#include "checkpoint/state.h"
#include "base/memory.h"

const char *state_name(enum state_kind kind) {
    static const char *const names[] = {"master", "exp_avg", "exp_avg_sq"};
    return names[kind];
}

/* Local elements [first, first + n) of tensor i, whole rows; `data` is where element `first` lies.
 */
static struct piece piece_of(const struct param *t, enum state_kind kind, size_t first, size_t n,
                             float *data) {
    return (struct piece){.param = t,
                          .kind = kind,
                          .first_row = t->first_row + (int64_t)first / t->cols,
                          .rows = (int64_t)n / t->cols,
                          .data = data,
                          .n = n};
}

static float *moment(const struct optimizer *o, enum state_kind kind) {
    return kind == STATE_EXP_AVG ? o->m : o->v;
}

/* Elements [first, first + n) of tensor i, within this rank's share of it, in all kinds. */
static int add_kinds(const struct optimizer *o, int i, size_t first, size_t n, struct piece *list) {
    const struct param *t = &o->model->params->list[i];
    const struct share *s = &o->model->shares[i];
    size_t skip = first - s->first;
    list[0] = piece_of(t, STATE_MASTER, first, n, model_master(o->model, i) + skip);
    for (enum state_kind k = STATE_EXP_AVG; k < N_STATES; k++)
        list[k] = piece_of(t, k, first, n, s->frozen ? NULL : moment(o, k) + s->state + skip);
    return N_STATES;
}

struct piece *state_to_save(const struct optimizer *o, int *n) {
    const struct params *p = o->model->params;
    struct piece *list = memory_alloc_array((size_t)p->n * N_STATES, sizeof *list);
    *n = 0;
    for (int i = 0; i < p->n; i++) {
        const struct share *s = &o->model->shares[i];
        if (s->norm_n > 0) *n += add_kinds(o, i, s->norm_first, s->norm_n, list + *n);
    }
    return list;
}

struct piece *state_to_load(const struct optimizer *o, int *n) {
    const struct params *p = o->model->params;
    struct piece *list = memory_alloc_array((size_t)p->n * N_STATES, sizeof *list);
    *n = 0;
    for (int i = 0; i < p->n; i++) {
        const struct share *s = &o->model->shares[i];
        if (s->n == 0) continue;
        int kinds = add_kinds(o, i, s->first, s->n, list + *n);
        *n += s->frozen ? 1 : kinds;
    }
    return list;
}

struct params **state_tables(const struct shape *s, const struct config *c, int dp_size,
                             int ep_size) {
    struct params **list = memory_alloc_array((size_t)ep_size, sizeof(struct params *));
    for (int e = 0; e < ep_size; e++) {
        struct grid g = {
            .n_ranks = dp_size * ep_size, .dp_size = dp_size, .ep_size = ep_size, .ep_rank = e};
        list[e] = params_new(s, &g, c);
    }
    return list;
}

void state_tables_free(struct params **tables, int ep_size) {
    for (int e = 0; e < ep_size; e++) params_free(tables[e]);
    memory_free(tables);
}

int state_rows(const struct param *t, int dp_size, int ep_size, int dp_rank, int ep_rank,
               int64_t *first, int64_t *rows) {
    int dense = t->kind == PARAM_DENSE, rank = dense ? dp_rank * ep_size + ep_rank : dp_rank,
        size = dense ? dp_size * ep_size : dp_size;
    int64_t last;
    params_shard(t->rows, rank, size, first, &last);
    *rows = params_replicated(t->rows, size) && rank > 0 ? 0 : last - *first;
    *first += t->first_row;
    return *rows > 0;
}
