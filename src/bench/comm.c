#include "config.h"
#include "bench/comm.h"
#include "backend/formats.h"
#include "base/memory.h"
#include "bench/ops.h"
#include "bench/pair.h"
#include "bench/routing.h"
#include "low_row.h"
#include <math.h>
#include <string.h>

enum { X, OUT, ROWS, RESULTS, P, DP, DP_ROWS, IDS, N_ARRAYS };
enum phase { DISPATCH, COMBINE, COMBINE_BACKWARD, DISPATCH_BACKWARD, N_PHASES };

/* The exchange of one layer; its experts give back what they get. */
struct traffic {
    struct backend *be;
    struct moe_shape shape;
    struct moe *moe;
    struct routing r;
    int N;
    void *at[N_ARRAYS];
};

static double slowest(const struct backend *be, double x) {
    MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_MAX, be->grid->world);
    return x;
}

static void wait_for(struct backend *be, const void *p) {
    char byte;
    be->download(be, &byte, p, 1);
}

/* Seconds of a call on the slowest rank, of about `seconds` of calls. */
typedef void call(void *context, int which);
static double time_of(struct backend *be, const void *any, call *run, void *context, int which,
                      double seconds) {
    enum { WARM_UP = 3 };
    double start, once = 0;
    int n = 1;
    for (int i = 0; i < WARM_UP; i++) {
        MPI_Barrier(be->grid->world);
        start = MPI_Wtime();
        run(context, which);
        wait_for(be, any);
        once = slowest(be, MPI_Wtime() - start);
    }
    if (once < seconds) n = (int)(seconds / once) + 1;
    MPI_Barrier(be->grid->world);
    start = MPI_Wtime();
    for (int i = 0; i < n; i++) run(context, which);
    wait_for(be, any);
    return slowest(be, MPI_Wtime() - start) / n;
}

static void traffic_open(struct traffic *t, struct backend *be, const struct sizes *z,
                         const char *routing) {
    const struct grid *g = be->grid;
    *t = (struct traffic){.be = be, .N = z->N};
    t->shape = (struct moe_shape){.D = z->D, .F = z->F, .E = z->E, .A = z->A, .capacity = z->N};
    ops_reserve(be, z);
    t->moe = be->moe_new(be, t->shape);
    size_t N = (size_t)z->N, D = (size_t)z->D, A = (size_t)z->A, R = be->moe_rows(be, t->shape),
           r = be->real_bytes, f = sizeof(float);
    t->at[X] = be->alloc(be, N * D * r), t->at[OUT] = be->alloc(be, N * D * r);
    t->at[ROWS] = be->alloc_shared(be, R * D * r), t->at[RESULTS] = be->alloc_shared(be, R * D * r);
    t->at[DP_ROWS] = be->alloc_shared(be, R * f);
    t->at[P] = be->alloc(be, N * A * f), t->at[DP] = be->alloc(be, N * A * f);
    t->at[IDS] = be->alloc(be, N * A * sizeof(int32_t));
    int32_t *ids = routing_ids(routing, z->N, z->E, z->A, (uint64_t)g->rank * (uint64_t)z->N);
    float *x = memory_alloc_array(N * D + N * A, sizeof *x);
    for (size_t i = 0; i < N * D; i++) x[i] = (float)((i * 7 + (size_t)g->rank) % 64) - 31;
    be->upload(be, t->at[IDS], ids, N * A * sizeof *ids);
    be->upload_real(be, t->at[X], x, N * D);
    for (size_t i = 0; i < N * A; i++) x[i] = 1 / (float)A;
    be->upload(be, t->at[P], x, N * A * f);
    t->r = (struct routing){.ids = t->at[IDS], .p = t->at[P]};
    memory_free(x);
    memory_free(ids);
}

static void traffic_close(struct traffic *t) {
    for (int k = 0; k < N_ARRAYS; k++) t->be->release(t->be, t->at[k]);
    t->be->moe_free(t->be, t->moe);
}

/* Also again and again: then results are sums of sums, and only the time counts. */
static void exchange(void *context, int which) {
    struct traffic *t = context;
    struct backend *be = t->be;
    switch ((enum phase)which) {
    case DISPATCH:
        be->moe_dispatch(be, t->moe, t->at[ROWS], t->at[X], &t->r, t->N);
        break;
    case COMBINE:
        be->moe_combine(be, t->moe, t->at[OUT], t->at[RESULTS], t->N);
        break;
    case COMBINE_BACKWARD:
        be->moe_combine_backward(be, t->moe, t->at[RESULTS], t->at[X], t->N);
        break;
    default:
        be->moe_dispatch_backward(be, t->moe, t->at[OUT], t->at[DP], t->at[RESULTS], t->at[DP_ROWS],
                                  t->N);
    }
}

/* What x[n, D] is on its way to the experts. */
static void round_rows(float *x, size_t n, int D) {
    struct format f = {.element = E4M3, .scale = FORMAT_FP32, .rows = 1, .cols = LOW_ROW_BLOCK};
    format_round(f, x, (int)n, D, (size_t)D, x, (size_t)D, NULL, NULL);
}

/* A token's result is its own value A times: small whole numbers, exact where A is. */
static int is_wrong(struct traffic *t, enum phase back) {
    struct backend *be = t->be;
    size_t n = (size_t)t->N * (size_t)t->shape.D;
    float *x = memory_alloc_array(2 * n, sizeof *x), *out = x + n;
    int wrong = 0;
    exchange(t, back == COMBINE ? DISPATCH : COMBINE_BACKWARD);
    if (back == COMBINE)
        be->copy(be, t->at[RESULTS], t->at[ROWS],
                 be->moe_rows(be, t->shape) * (size_t)t->shape.D * be->real_bytes);
    exchange(t, back);
    be->download_real(be, x, t->at[X], n);
    be->download_real(be, out, t->at[OUT], n);
    if (be->low_rows) round_rows(x, (size_t)t->N, t->shape.D);
    for (size_t i = 0; i < n; i++)
        wrong |= !(fabsf(out[i] - (float)t->shape.A * x[i]) <= 0.02f * fabsf(out[i]));
    memory_free(x);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, be->grid->world);
    return wrong;
}

/* Tokens that a dispatch of this rank sends to others. */
static double sent_to_others(struct traffic *t) {
    const struct grid *g = t->be->grid;
    double n = 0;
    for (int pass = 0; pass < 2; pass++) {
        const uint64_t *sent = t->be->sent(t->be);
        for (int r = 0; r < g->ep_size; r++)
            if (r != g->ep_rank) n += (pass ? 1 : -1) * (double)sent[r];
        if (!pass) exchange(t, DISPATCH);
    }
    MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_DOUBLE, MPI_SUM, g->world);
    return n / g->n_ranks;
}

/* Its way for `what` ("exchange", "collectives"): a word of engine.exchange. */
static const char *way_of(const struct backend *be, const char *what) {
    char peer[40];
    snprintf(peer, sizeof peer, "%s peer", what);
    return strcmp(be->name, "cpu") == 0 ? "mpi" : strstr(be->engines, peer) ? "peer" : "nccl";
}

/* A line of the table. Closes be. Returns 1 for a wrong result. */
static int run(struct backend *be, const struct sizes *z, const struct comm_wish *wish, FILE *csv,
               const char **way) {
    struct traffic t;
    double s[N_PHASES];
    traffic_open(&t, be, z, wish->routing);
    const char *name = *way = way_of(be, "exchange");
    int wrong = 0;
    for (int without = 0; without < 2; without++) { /* ranks that have no tokens */
        t.N = without && be->grid->rank % 2 ? 0 : z->N;
        wrong += is_wrong(&t, COMBINE) + is_wrong(&t, DISPATCH_BACKWARD);
    }
    t.N = z->N;
    double copies = sent_to_others(&t), back = copies * z->D * (double)be->real_bytes,
           there = be->low_rows ? copies * (double)low_row_bytes(z->D) : back;
    const double bytes[N_PHASES] = {[DISPATCH] = there,
                                    [COMBINE] = back,
                                    [COMBINE_BACKWARD] = there,
                                    [DISPATCH_BACKWARD] = back};
    for (int k = 0; k < N_PHASES; k++)
        s[k] = time_of(be, t.at[OUT], exchange, &t, k, wish->seconds / N_PHASES);
    int talks = be->grid->rank == 0;
    traffic_close(&t);
    backend_close(be);
    if (!talks) return wrong > 0;
    printf("%-6s %7d %9.0f", name, z->N, copies);
    for (int k = 0; k < N_PHASES; k++) printf(" %9.1f %6.1f", s[k] * 1e6, bytes[k] / s[k] / 1e9);
    printf("  %s\n", wrong ? "wrong" : "");
    fflush(stdout);
    if (csv) {
        fprintf(csv, "%s,%d,%.6g,%.9g,%.9g", name, z->N, copies, there, back);
        for (int k = 0; k < N_PHASES; k++) fprintf(csv, ",%.6g", s[k]);
        fprintf(csv, ",%d\n", wrong);
    }
    return wrong > 0;
}

/* ---- collectives ---- */

enum collective {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BESIDE,
    ADD = BESIDE,
    GATHER,
    N_COLLECTIVES
};

struct collected {
    struct backend *be;
    float *x, *sum;    /* sum: what ADD adds to */
    size_t n, *counts; /* [ranks] */
};

static size_t most_collected(const struct backend *be) {
    return strcmp(be->name, "cpu") == 0 ? 1 << 22 : 1 << 26;
}

static void collect(void *context, int which) {
    struct collected *c = context;
    struct backend *be = c->be;
    if (which >= BESIDE) be->beside(be);
    switch ((enum collective)which) {
    case ALL_REDUCE:
        be->all_reduce(be, be->grid->world, c->x, c->n);
        break;
    case REDUCE_SCATTER:
        be->reduce_scatter(be, be->grid->world, c->x, c->counts);
        break;
    case ADD:
        be->reduce_scatter_add(be, be->grid->world, c->sum, c->x, c->counts,
                               /*without_own=*/0);
        break;
    default:
        be->all_gather(be, be->grid->world, c->x, c->counts);
    }
    if (which >= BESIDE) be->back(be, 0), be->await(be, 0);
}

/* Bytes that a ring has each rank send: twice all but a share for the all-reduce. */
static void time_collective(struct collected *c, int which, const char *name, double seconds) {
    enum { LEAST = 1 << 18, TIMES = 16 };
    struct backend *be = c->be;
    size_t ranks = (size_t)be->grid->n_ranks;
    int of_weights = which == ALL_GATHER || which == GATHER;
    for (c->n = LEAST; c->n <= most_collected(be); c->n *= TIMES) {
        double bytes = (double)c->n * (of_weights ? (double)be->real_bytes : sizeof *c->x),
               sent = bytes * (double)(ranks - 1) / (double)ranks * (which == ALL_REDUCE ? 2 : 1);
        for (size_t r = 0; r < ranks; r++) c->counts[r] = c->n / ranks / 64 * 64;
        double s = time_of(be, c->x, collect, c, which, seconds / 4);
        if (be->grid->rank == 0)
            printf("%-16s %10.3f %12.1f %8.1f\n", name, bytes / 1e6, s * 1e6, sent / s / 1e9);
    }
}

static void collectives(struct backend *be, double seconds) {
    static const char *const names[] = {"all_reduce", "reduce_scatter", "all_gather"};
    struct collected c = {.be = be};
    c.counts = memory_alloc_array((size_t)be->grid->n_ranks, sizeof *c.counts);
    c.x = be->alloc(be, most_collected(be) * sizeof *c.x);
    if (be->grid->rank == 0) printf("%-16s %10s %12s %8s\n", "# collective", "MB", "us", "GB/s");
    for (int k = 0; k < BESIDE; k++) time_collective(&c, k, names[k], seconds);
    be->release(be, c.x);
    memory_free(c.counts);
}

/* Closes be. Returns its way. */
static const char *collectives_beside(struct backend *be, const struct sizes *z, double seconds) {
    struct work w = ops_work(z);
    struct collected c = {.be = be};
    char name[40];
    w.beside = BESIDE_PASSES;
    be->reserve(be, w);
    const char *way = way_of(be, "collectives");
    c.counts = memory_alloc_array((size_t)be->grid->n_ranks, sizeof *c.counts);
    c.x = be->alloc_beside(be, most_collected(be) * sizeof *c.x);
    c.sum = be->alloc(be, most_collected(be) * sizeof *c.sum);
    snprintf(name, sizeof name, "add_%s", way);
    time_collective(&c, ADD, name, seconds);
    snprintf(name, sizeof name, "gather_%s", way);
    time_collective(&c, GATHER, name, seconds);
    be->release(be, c.sum);
    be->release(be, c.x);
    memory_free(c.counts);
    backend_close(be);
    return way;
}

int comm_run(struct backend *be, open_exchange *open, open_exchange *open_beside, void *context,
             const struct sizes *z, const struct comm_wish *wish, FILE *csv) {
    const struct grid *g = be->grid;
    int wrong = 0;
    if (g->rank == 0) {
        printf("# backend %s (%s)\n# %d ranks, D %d, E %d, A %d, routing %s%s\n# copies of tokens "
               "that a rank sends to others; of each part us, and GB/s of what is sent\n",
               be->name, be->details, g->n_ranks, z->D, z->E, z->A, wish->routing,
               be->low_rows ? ", to the experts in eight bits" : "");
        printf("%-6s %7s %9s %16s %16s %16s %16s\n", "# way", "tokens", "copies", "dispatch",
               "combine", "comb. backward", "disp. backward");
        if (csv)
            fprintf(csv,
                    "way,tokens,copies,there_bytes,back_bytes,dispatch_seconds,combine_seconds,"
                    "combine_backward_seconds,dispatch_backward_seconds,wrong\n");
    }
    backend_close(be);
    for (int i = 0; i < wish->n; i++) {
        struct sizes one = *z;
        const char *way;
        one.N = wish->tokens[i];
        wrong += run(open(context, wish->way), &one, wish, csv, &way);
        if (wish->way == EXCHANGE_AUTO && strcmp(way, "peer") == 0)
            wrong += run(open(context, EXCHANGE_NCCL), &one, wish, csv, &way);
    }
    be = open(context, wish->way);
    collectives(be, wish->seconds);
    backend_close(be);
    const char *way = collectives_beside(open_beside(context, wish->beside), z, wish->seconds);
    if (wish->beside == EXCHANGE_AUTO && strcmp(way, "peer") == 0)
        collectives_beside(open_beside(context, EXCHANGE_NCCL), z, wish->seconds);
    return wrong;
}
