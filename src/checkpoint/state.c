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

struct piece *state_to_save(const struct optimizer *o, int *n) {
    const struct params *p = o->model->params;
    struct piece *list = memory_alloc_array((size_t)p->n * N_STATES, sizeof *list);
    float *weights = o->model->weights;
    *n = 0;
    for (int i = 0; i < p->n; i++) {
        const struct param *t = &p->list[i];
        const struct shard *s = &o->shards[i];
        if (s->norm_n == 0) continue;
        list[(*n)++] = piece_of(t, STATE_MASTER, s->norm_first, s->norm_n,
                                weights + t->offset + s->norm_first);
        for (enum state_kind k = STATE_EXP_AVG; k < N_STATES; k++)
            list[(*n)++] = piece_of(t, k, s->norm_first, s->norm_n,
                                    moment(o, k) + s->state + (s->norm_first - s->first));
    }
    return list;
}

struct piece *state_to_load(const struct optimizer *o, int *n) {
    const struct params *p = o->model->params;
    struct piece *list = memory_alloc_array((size_t)p->n * N_STATES, sizeof *list);
    float *weights = o->model->weights;
    *n = 0;
    for (int i = 0; i < p->n; i++) {
        const struct param *t = &p->list[i];
        const struct shard *s = &o->shards[i];
        list[(*n)++] = piece_of(t, STATE_MASTER, 0, t->n, weights + t->offset);
        for (enum state_kind k = STATE_EXP_AVG; k < N_STATES && s->n > 0; k++)
            list[(*n)++] = piece_of(t, k, s->first, s->n, moment(o, k) + s->state);
    }
    return list;
}

struct piece *state_weights(const struct model *m, int *n) {
    const struct params *p = m->params;
    struct piece *list = memory_alloc_array((size_t)p->n, sizeof *list);
    float *weights = m->weights;
    *n = p->n;
    for (int i = 0; i < p->n; i++)
        list[i] = piece_of(&p->list[i], STATE_MASTER, 0, p->list[i].n, weights + p->list[i].offset);
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
