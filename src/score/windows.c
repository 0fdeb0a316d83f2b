#include "config.h"
#include "score/windows.h"
#include "base/die.h"
#include "base/memory.h"
#include "data/batch.h"
#include "data/loader.h"
#include "grid/watchdog.h"
#include <limits.h>
#include <math.h>
#include <string.h>

/* The windows of one micro-batch. */
struct pack {
    struct window *list;
    int n, room, n_tokens;
};

struct round {
    struct trained *t;
    const struct windows_source *source;
    struct pack *packs; /* [n_ranks] */
    struct window next; /* did not fit into the last micro-batch */
    int has_next;
    struct batch *batch;
    size_t width;
    float *mine, *theirs; /* [capacity, width]; theirs: of another rank, rank 0 */
    double *losses,
        *host;   /* [capacity + 1], [capacity]; losses in backend memory, their sum last */
    int spoiled; /* this rank found a number that is not finite */
};

/* values[N, width] of the micro-batch that went through the model. */
typedef void measure_function(struct round *r, float *values);

static void add(struct pack *p, const struct window *w) {
    if (p->n == p->room) {
        p->room = 2 * p->room + 16;
        p->list = memory_resize(p->list, (size_t)p->room * sizeof *p->list);
    }
    p->list[p->n++] = *w;
    p->n_tokens += w->n;
}

/* The micro-batches of the next round; returns the windows in them. */
static int plan(struct round *r) {
    int all = 0;
    for (int k = 0; k < r->t->grid.n_ranks; k++) {
        struct pack *p = &r->packs[k];
        p->n = p->n_tokens = 0;
        while (r->has_next && p->n_tokens + r->next.n <= r->batch->capacity) {
            add(p, &r->next);
            r->has_next = r->source->next(r->source->context, &r->next);
        }
        all += p->n;
    }
    return all;
}

static void fill(struct round *r, const struct pack *p) {
    struct batch *b = r->batch;
    batch_clear(b);
    for (int i = 0; i < p->n; i++) {
        int32_t *tokens = b->tokens + b->n, *labels = b->targets + b->n;
        r->source->fill(r->source->context, &p->list[i], tokens, labels, b->weights + b->n);
        batch_append(b, tokens, labels, NULL, p->list[i].n);
    }
}

/* What this rank found, or on rank 0 what all found one after the other, to the source. */
static void hand_over(struct round *r) {
    const struct grid *g = &r->t->grid;
    if (g->rank != 0) {
        MPI_Send(r->mine, (int)((size_t)r->batch->n * r->width), MPI_FLOAT, 0, 0, g->world);
        return;
    }
    for (int k = 0; k < g->n_ranks; k++) {
        const struct pack *p = &r->packs[k];
        const float *values = k == 0 ? r->mine : r->theirs;
        if (k > 0)
            MPI_Recv(r->theirs, (int)((size_t)p->n_tokens * r->width), MPI_FLOAT, k, 0, g->world,
                     MPI_STATUS_IGNORE);
        for (int i = 0; i < p->n; i++) {
            r->source->take(r->source->context, &p->list[i], values);
            values += (size_t)p->list[i].n * r->width;
        }
        watchdog_progress();
    }
}

/* A model whose numbers are not finite says nothing of any sequence. */
static void refuse_spoiled(const struct round *r) {
    const struct grid *g = &r->t->grid;
    if (!agree_any(g, r->spoiled)) return;
    if (g->rank == 0) die_user(EXIT_NONFINITE, "%s: what it computes is not finite", r->t->weights);
    user_agree();
}

static void run(struct trained *t, const struct windows_source *s, size_t width,
                measure_function *measure) {
    size_t n_ranks = (size_t)t->grid.n_ranks, capacity = (size_t)t->model->capacity,
           room = capacity * width;
    if (room > INT_MAX && t->grid.rank == 0) /* MPI counts in int */
        die_user(EXIT_CONFIG,
                 "dataset.token_micro_batch_size: %zu numbers of micro-batches of %zu tokens are "
                 "too many",
                 room, capacity);
    user_agree();
    struct round r = {.t = t,
                      .source = s,
                      .packs = memory_alloc_array(n_ranks, sizeof *r.packs),
                      .batch = batch_new(t->model->capacity),
                      .width = width,
                      .mine = memory_alloc_array(room, sizeof *r.mine),
                      .theirs = memory_alloc_array(room, sizeof *r.theirs),
                      .losses = t->be->alloc(t->be, (capacity + 1) * sizeof *r.losses),
                      .host = memory_alloc_array(capacity, sizeof *r.host)};
    r.has_next = s->next(s->context, &r.next);
    while (watchdog_phase(WATCHDOG_DATA, -1), plan(&r) > 0) {
        fill(&r, &r.packs[t->grid.rank]);
        model_forward(t->model, r.batch);
        measure(&r, r.mine);
        refuse_spoiled(&r);
        watchdog_phase(WATCHDOG_RECORD, -1);
        hand_over(&r);
    }
    for (size_t k = 0; k < n_ranks; k++) memory_free(r.packs[k].list);
    memory_free(r.packs);
    batch_free(r.batch);
    memory_free(r.mine);
    memory_free(r.theirs);
    memory_free(r.host);
    t->be->release(t->be, r.losses);
}

/* A token's loss is that of the token behind it. */
static void measure_score(struct round *r, float *values) {
    struct model *m = r->t->model;
    const struct batch *b = r->batch;
    model_loss(m, r->losses + m->capacity, r->losses);
    m->be->download(m->be, r->host, r->losses, (size_t)b->n * sizeof *r->host);
    for (int i = 0; i < b->n; i++) {
        int scored = i > 0 && b->targets[i - 1] >= 0;
        values[i] = scored ? -(float)r->host[i - 1] : NAN;
        r->spoiled |= scored && !isfinite(r->host[i - 1]);
    }
}

static void measure_embed(struct round *r, float *values) {
    struct model *m = r->t->model;
    size_t n = (size_t)r->batch->n * (size_t)m->s.D;
    m->be->download_real(m->be, values, m->depth == m->s.L ? m->xn : m->x, n);
    for (size_t i = 0; i < n; i++) r->spoiled |= !isfinite(values[i]);
}

int windows_capacity(const struct config *c) {
    int n = loader_capacity(c);
    return n > c->dataset.max_seq_length ? n : (int)c->dataset.max_seq_length;
}

void windows_score(struct trained *t, const struct windows_source *s) {
    run(t, s, 1, measure_score);
}

void windows_embed(struct trained *t, const struct windows_source *s) {
    run(t, s, (size_t)t->model->s.D, measure_embed);
}
