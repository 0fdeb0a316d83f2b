/* Collectives beside other work, over the world and over its data-parallel groups, each kind alone
 * and all together: what they bring, of shares of all sizes, none among them, and that their
 * arrays are whole once they were awaited and may be written again at once, however late other
 * ranks are or have more to fetch. The host waits for nothing before the end. Values are small
 * whole numbers, so sums are exact. */
#include "config.h"
#include "base/memory.h"
#include "tap.h"
#include "trial.h"
#include <string.h>

enum { ROUNDS = 16, RANKS = 4, SUMMED = 1000, TIMES = 40 };

/* Elements of the largest share on a GPU: more than two rooms that parts of sums come to hold. */
#ifndef LARGEST
#define LARGEST 45000000
#endif

static int on_cpu(const struct backend *be) {
    return strcmp(be->name, "cpu") == 0;
}

/* Of a rank of world. */
static float value(int rank, int round, size_t i) {
    return (float)((rank + 1) * ((int)((i * 5 + (size_t)round) % 17) - 8));
}

/* Elements of rank k's share. */
static size_t share(const struct backend *be, int k, int round) {
    static const size_t sizes[] = {64, 0, 4096, 1001, 8, 100000};
    size_t n = sizes[((size_t)k + (size_t)round) % (sizeof sizes / sizeof *sizes)];
    return !on_cpu(be) && n == 100000 ? LARGEST : n;
}

enum { GATHER = 1, ADD = 2, SUM = 4, REDUCE = 8 };

struct round {
    int kinds, without_own;
    MPI_Comm comm;
    int n_ranks, me, of[RANKS]; /* of the group, by rank of world */
    size_t counts[RANKS], n, first;
    size_t place; /* in the arrays that ranks share: at their beginning or, even rounds, end */
    float *source, *sum, *summed;
    float *sum_then, *reduced; /* as they were once awaited */
    real_t *own, *whole;
};

static void open_round(struct backend *be, struct round *r, int round) {
    const struct grid *g = be->grid;
    static const int kinds[] = {GATHER, ADD | REDUCE, SUM, GATHER | ADD | SUM | REDUCE};
    *r = (struct round){.kinds = kinds[round % 4],
                        .comm = round / 4 % 2 ? g->dp : g->world,
                        .without_own = round / 8 % 2};
    MPI_Comm_size(r->comm, &r->n_ranks);
    MPI_Comm_rank(r->comm, &r->me);
    MPI_Allgather(&g->rank, 1, MPI_INT, r->of, 1, MPI_INT, r->comm);
    for (int k = 0; k < r->n_ranks; k++) {
        r->counts[k] = share(be, k, round);
        r->n += r->counts[k];
        if (k < r->me) r->first += r->counts[k];
    }
    size_t n = r->n > SUMMED ? r->n : SUMMED, mine = r->counts[r->me];
    float *x = memory_alloc_array(n, sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = value(g->rank, round, i);
    r->source = be->alloc(be, n * sizeof *x), r->summed = be->alloc(be, SUMMED * sizeof *x);
    r->own = be->alloc(be, (mine + 1) * be->real_bytes);
    r->whole = be->alloc(be, (r->n + 1) * be->real_bytes);
    r->sum = be->alloc(be, (mine + 1) * sizeof *x);
    r->sum_then = be->alloc(be, (mine + 1) * sizeof *x);
    r->reduced = be->alloc(be, (mine + 1) * sizeof *x);
    be->upload(be, r->source, x, n * sizeof *x);
    be->upload_real(be, r->own, x + r->first, mine);
    for (size_t i = 0; i < mine; i++) x[i] = 1;
    be->upload(be, r->sum, x, mine * sizeof *x);
    memory_free(x);
}

/* Elements of the arrays that ranks share. */
static size_t room_of(const struct round *r) {
    return r->kinds & SUM && r->n < SUMMED ? SUMMED : r->n;
}

/* x and w: the arrays that ranks share, lost as soon as they may be. */
static void ask(struct backend *be, const struct round *r, float *x, real_t *w) {
    size_t mine = r->counts[r->me];
    w = real_at(be, w, r->place), x += r->place;
    if (r->kinds & GATHER) {
        be->beside(be);
        be->copy(be, real_at(be, w, r->first), r->own, mine * be->real_bytes);
        be->all_gather(be, r->comm, w, r->counts);
        be->back(be, 0);
    }
    if (r->kinds & ADD) {
        be->copy(be, x, r->source, r->n * sizeof *x);
        be->beside(be);
        be->reduce_scatter_add(be, r->comm, r->sum, x, r->counts, r->without_own);
        be->back(be, 1);
        be->beside(be);
        be->back(be, 1); /* of nothing: the sums are awaited all the same */
        be->await(be, 1);
        be->zero(be, x, r->n * sizeof *x);
        be->copy(be, r->sum_then, r->sum, mine * sizeof *x);
    }
    if (r->kinds & REDUCE) {
        be->copy(be, x, r->source, r->n * sizeof *x);
        be->beside(be);
        be->reduce_scatter(be, r->comm, x, r->counts);
        be->back(be, 2);
        be->await(be, 2);
        be->copy(be, r->reduced, x + r->first, mine * sizeof *x);
        be->zero(be, x, r->n * sizeof *x);
    }
    if (r->kinds & SUM) {
        be->copy(be, x, r->source, SUMMED * sizeof *x);
        be->beside(be);
        be->all_reduce(be, r->comm, x, SUMMED);
        be->back(be, 1);
        be->await(be, 1);
        be->copy(be, r->summed, x, SUMMED * sizeof *x);
        be->zero(be, x, SUMMED * sizeof *x);
    }
    if (r->kinds & GATHER) {
        be->await(be, 0);
        be->copy(be, r->whole, w, r->n * be->real_bytes);
        be->zero(be, w, r->n * be->real_bytes);
    }
}

static float sum_of(const struct round *r, int round, size_t i, int without_own) {
    float sum = 0;
    for (int k = 0; k < r->n_ranks; k++)
        if (k != r->me || !without_own) sum += value(r->of[k], round, i);
    return sum;
}

static size_t n_wrong(struct backend *be, const struct round *r, int round) {
    size_t n = r->n > SUMMED ? r->n : SUMMED, mine = r->counts[r->me], wrong = 0, at = 0;
    float *x = memory_alloc_array(n, sizeof *x);
    if (r->kinds & ADD) {
        be->download(be, x, r->sum_then, mine * sizeof *x);
        for (size_t i = 0; i < mine; i++)
            wrong += x[i] != 1 + sum_of(r, round, r->first + i, r->without_own);
    }
    if (r->kinds & REDUCE) {
        be->download(be, x, r->reduced, mine * sizeof *x);
        for (size_t i = 0; i < mine; i++)
            wrong += x[i] != sum_of(r, round, r->first + i, /*without_own=*/0);
    }
    if (r->kinds & SUM) {
        be->download(be, x, r->summed, SUMMED * sizeof *x);
        for (size_t i = 0; i < SUMMED; i++) wrong += x[i] != sum_of(r, round, i, /*without_own=*/0);
    }
    if (r->kinds & GATHER) {
        be->download_real(be, x, r->whole, r->n);
        for (int k = 0; k < r->n_ranks; at += r->counts[k++])
            for (size_t i = at; i < at + r->counts[k]; i++)
                wrong += x[i] != value(r->of[k], round, i);
    }
    memory_free(x);
    return wrong;
}

static void close_round(struct backend *be, struct round *r) {
    void *const all[] = {r->source, r->sum, r->summed, r->sum_then, r->reduced, r->own, r->whole};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) be->release(be, all[i]);
}

static void check(int dp, int ep) {
    struct grid g;
    struct round rounds[ROUNDS];
    grid_open(&g, MPI_COMM_WORLD, dp, ep);
    struct backend *be = trial_backend(&g);
    be->reserve(be, (struct work){.N = 64,
                                  .D = 64,
                                  .F = 64,
                                  .E = 4,
                                  .A = 2,
                                  .V = 64,
                                  .attention = {.H = 2, .G = 2, .K = 32},
                                  .theta = 1e4,
                                  .backward = 1,
                                  .beside = BESIDE_PASSES});
    size_t most = 0, wrong = 0, late = on_cpu(be) ? 0 : LARGEST / 10;
    for (int i = 0; i < ROUNDS; i++) {
        open_round(be, &rounds[i], i);
        if (room_of(&rounds[i]) > most) most = room_of(&rounds[i]);
    }
    MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_UNSIGNED_LONG, MPI_MAX, g.world);
    for (int i = 0; i < ROUNDS; i += 2) rounds[i].place = most - room_of(&rounds[i]);
    float *x = be->alloc_beside(be, most * sizeof *x),
          *other = be->alloc(be, (2 * late + 1) * sizeof *x);
    real_t *w = be->alloc_beside(be, most * be->real_bytes);
    for (int i = 0; i < ROUNDS; i++) {
        for (int k = 0; k < TIMES && (g.rank + i) % 2 && late; k++) /* every second one is */
            be->copy(be, other, other + late, late * sizeof *x);
        ask(be, &rounds[i], x, w);
    }
    for (int i = 0; i < ROUNDS; i++) wrong += n_wrong(be, &rounds[i], i);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UNSIGNED_LONG, MPI_SUM, g.world);
    tap_ok(wrong == 0, "%d x %d: %d rounds, up to %zu elements: %zu wrong", dp, ep, ROUNDS, most,
           wrong);
    for (int i = 0; i < ROUNDS; i++) close_round(be, &rounds[i]);
    be->release(be, x);
    be->release(be, w);
    be->release(be, other);
    backend_close(be);
    grid_close(&g);
}

int main(int argc, char **argv) {
    int n;
    tap_open(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    for (int ep = 1; ep <= n; ep *= 2) check(n / ep, ep);
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
