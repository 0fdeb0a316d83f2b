#include "config.h"
#include "bench/moe.h"
#include "base/memory.h"
#include "bench/contest.h"
#include "bench/ops.h"
#include "bench/pair.h"
#include "bench/routing.h"
#include <math.h>
#include <string.h>

enum {
    X,
    DOUT,
    OUT,
    DX,
    ROUTER,
    UP,
    DOWN,
    ROWS,
    RESULTS,
    Z,
    H, /* of the compute type */
    LOGITS,
    PROBS,
    LSE,
    P,
    DP,
    DP_ROWS,
    DPROBS,
    DZ,
    DROUTER,
    DUP,
    DDOWN, /* FP32 */
    IDS,
    COUNTS,
    SUM_P,
    ENTROPY,
    SUM_Z,
    N_ARRAYS
};

struct layer {
    struct backend *be;
    struct sides sides; /* the backend alone */
    struct sizes z;
    struct moe_shape shape;
    int fused; /* engine.fused, of grouped experts */
    struct moe *moe;
    struct routing r;
    struct pair a[N_ARRAYS];
};
#define AT(k) (l->a[k].at[1])

static void make_arrays(struct layer *l, const int32_t *ids) {
    struct sides *s = &l->sides;
    size_t N = (size_t)l->z.N, D = (size_t)l->z.D, F = (size_t)l->z.F, E = (size_t)l->z.E,
           A = (size_t)l->z.A, R = l->be->moe_rows(l->be, l->shape);
    const struct {
        int k;
        size_t n;
        double scale; /* 0: zeros */
    } reals[] = {{X, N * D, 1},
                 {DOUT, N * D, 1},
                 {OUT, N * D, 0},
                 {DX, N * D, 0},
                 {ROUTER, E * D, 1 / sqrt((double)D)},
                 {UP, E * 2 * F * D, 1 / sqrt((double)D)},
                 {DOWN, E * D * F, 1 / sqrt((double)F)},
                 {ROWS, R * D, 0},
                 {RESULTS, R * D, 0},
                 {Z, R * 2 * F, 0},
                 {H, R * F, 0}},
      floats[] = {{LOGITS, N * E, 0},  {PROBS, N * E, 0},       {LSE, N, 0},          {P, N * A, 0},
                  {DP, N * A, 0},      {DP_ROWS, R, 0},         {DPROBS, E, 0.01},    {DZ, 1, 0.01},
                  {DROUTER, E * D, 0}, {DUP, E * 2 * F * D, 0}, {DDOWN, E * D * F, 0}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        l->a[reals[i].k] = reals[i].scale > 0
                               ? pair_normal(s, PAIR_REAL, reals[i].n, (float)reals[i].scale)
                               : pair_zeros(s, PAIR_REAL, reals[i].n);
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        l->a[floats[i].k] = floats[i].scale > 0
                                ? pair_normal(s, PAIR_FLOAT, floats[i].n, (float)floats[i].scale)
                                : pair_zeros(s, PAIR_FLOAT, floats[i].n);
    l->a[IDS] = pair_ints(s, ids, N * A);
    l->a[COUNTS] = pair_zeros(s, PAIR_INT, E);
    l->a[SUM_P] = pair_zeros(s, PAIR_DOUBLE, E);
    l->a[ENTROPY] = pair_zeros(s, PAIR_DOUBLE, 1);
    l->a[SUM_Z] = pair_zeros(s, PAIR_DOUBLE, 1);
}

static void layer_open(struct layer *l, struct backend *be, const struct sizes *z,
                       const int32_t *ids) {
    *l = (struct layer){.be = be, .sides = {.be = {NULL, be}}, .z = *z};
    l->shape = (struct moe_shape){.D = z->D, .F = z->F, .E = z->E, .A = z->A, .capacity = z->N};
    ops_reserve(be, z);
    be->forced = 1;
    l->moe = be->moe_new(be, l->shape);
    make_arrays(l, ids);
    l->r = (struct routing){.probs = AT(PROBS),
                            .lse = AT(LSE),
                            .ids = AT(IDS),
                            .p = AT(P),
                            .counts = AT(COUNTS),
                            .P = AT(SUM_P),
                            .entropy = AT(ENTROPY),
                            .z = AT(SUM_Z)};
}

static void layer_close(struct layer *l) {
    for (int k = 0; k < N_ARRAYS; k++) pair_free(&l->sides, &l->a[k]);
    l->be->moe_free(l->be, l->moe);
    backend_close(l->be);
}

/* The experts alone, on the rows that the forward pass of a layer has laid out. */
static void experts_forward(void *context) {
    struct layer *l = context;
    struct backend *be = l->be;
    be->experts_up(be, l->moe, AT(Z), AT(H), AT(ROWS), AT(UP));
    be->experts_down(be, l->moe, AT(RESULTS), AT(H), AT(DOWN));
}

/* RESULTS are the gradient of what the experts gave, then that of ROWS. */
static void experts_backward(struct layer *l) {
    struct backend *be = l->be;
    be->experts_down_backward(be, l->moe, AT(Z), AT(DP_ROWS), gradient_whole(AT(DDOWN), /*add=*/0),
                              AT(RESULTS), AT(Z), AT(H), AT(DOWN));
    be->experts_up_backward(be, l->moe, AT(RESULTS), gradient_whole(AT(DUP), /*add=*/0), AT(Z),
                            AT(ROWS), AT(UP));
}

static void experts_both(void *context) {
    experts_forward(context);
    experts_backward(context);
}

static void forward(void *context) {
    struct layer *l = context;
    struct backend *be = l->be;
    be->route(be, &l->r, AT(LOGITS), AT(X), AT(ROUTER), NULL, l->z.N, l->shape);
    be->moe_dispatch(be, l->moe, AT(ROWS), AT(X), &l->r, l->z.N);
    experts_forward(l);
    be->moe_combine(be, l->moe, AT(OUT), AT(RESULTS), l->z.N);
}

/* As model/experts.c has it, the rows made again included. */
static void both(void *context) {
    struct layer *l = context;
    struct backend *be = l->be;
    int N = l->z.N;
    forward(l);
    be->moe_combine_backward(be, l->moe, AT(ROWS), AT(X), N);
    be->moe_combine_backward(be, l->moe, AT(RESULTS), AT(DOUT), N);
    experts_backward(l);
    be->moe_dispatch_backward(be, l->moe, AT(DX), AT(DP), AT(RESULTS), AT(DP_ROWS), N);
    be->route_backward(be, AT(DX), AT(DROUTER), AT(LOGITS), &l->r, AT(DP), AT(DPROBS), AT(DZ),
                       AT(X), AT(ROUTER), N, l->shape, /*accumulate=*/0);
}

int moe_grouped(const struct backend *be) {
    return strstr(be->engines, "experts grouped") != NULL;
}

const char *moe_engine(const struct backend *be, int fused) {
    if (moe_grouped(be)) return fused ? "grouped" : "unfused";
    return strcmp(be->name, "cuda") == 0 ? "cublaslt" : "loop";
}

/* What the experts write forward and backward of rows that are of use, from the shapes: z, h and y;
 * dz, h again and dx; the gradients of weights in FP32; and, where the activation's gradient has a
 * pass of its own, dh. r: bytes of a real_t. */
static double written(const struct sizes *z, double r, int fused) {
    double rows = (double)z->N * z->A, D = z->D, F = z->F;
    return 2 * rows * (3 * F + D) * r + 12 * z->E * D * F + (fused ? 0 : rows * F * r);
}

/* Those that compete: what was asked for, and with AUTO what serves besides. */
static int open_layers(struct layer layers[3], open_engine *open, void *context,
                       const struct sizes *z, const struct moe_wish *wish, const int32_t *ids) {
    int n = 0;
    layer_open(&layers[n++], open(context, wish->engine, wish->fused), z, ids);
    layers[0].fused = wish->fused;
    if (wish->engine != EXPERTS_AUTO || !moe_grouped(layers[0].be)) return n;
    if (wish->alone && wish->fused)
        layer_open(&layers[n++], open(context, EXPERTS_GROUPED, /*fused=*/0), z, ids);
    layer_open(&layers[n++], open(context, EXPERTS_CUBLASLT, /*fused=*/0), z, ids);
    return n;
}

/* One number of experts, all engines. */
static void run(open_engine *open, void *context, const struct sizes *z,
                const struct moe_wish *wish, FILE *csv) {
    struct layer layers[3];
    struct contender forwards[3], boths[3];
    double forward_s[3], both_s[3], flops = 6e-12 * z->N * z->A * z->D * z->F;
    int32_t *ids = routing_ids(wish->routing, z->N, z->E, z->A, 0);
    int n = open_layers(layers, open, context, z, wish, ids);
    for (int i = 0; i < n; i++) {
        struct layer *l = &layers[i];
        forward(l); /* the experts alone need rows and counts */
        forwards[i] = (struct contender){l->be, wish->alone ? experts_forward : forward, l};
        boths[i] = (struct contender){l->be, wish->alone ? experts_both : both, l};
    }
    contest(forwards, n, wish->seconds, forward_s);
    contest(boths, n, wish->seconds, both_s);
    for (int i = 0; i < n; i++) {
        struct backend *be = layers[i].be;
        int launches = be->operations(be, experts_both, &layers[i]),
            fused = layers[i].fused && moe_grouped(be);
        const char *name = moe_engine(be, fused);
        double rates[] = {flops / forward_s[i], 3 * flops / both_s[i]},
               bytes = written(z, (double)be->real_bytes, fused);
        printf("%8d %10s %12.3f %8.*f %12.3f %8.*f %10d %11.4g\n", z->E, name, forward_s[i] * 1e3,
               rates[0] < 1 ? 4 : 1, rates[0], both_s[i] * 1e3, rates[1] < 1 ? 4 : 1, rates[1],
               launches, bytes / 1e9);
        fflush(stdout);
        if (csv)
            fprintf(csv, "%d,%s,%s,%.9g,%.6g,%.9g,%.6g,%d,%.0f\n", z->E, name, wish->routing,
                    forward_s[i], rates[0], both_s[i], rates[1], launches, bytes);
        layer_close(&layers[i]);
    }
    memory_free(ids);
}

void moe_run(struct backend *be, open_engine *open, void *context, const struct sizes *z,
             const struct moe_wish *wish, FILE *csv) {
    printf("# backend %s (%s)\n# N %d, D %d, F %d, A %d, routing %s\n# %s: forward, and "
           "forward with backward\n",
           be->name, be->details, z->N, z->D, z->F, z->A, wish->routing,
           wish->alone ? "the experts alone" : "a layer");
    backend_close(be);
    printf("%8s %10s %12s %8s %12s %8s %10s %11s\n", "# experts", "engine", "forward, ms",
           "TFLOP/s", "both, ms", "TFLOP/s", "launches", "GB written");
    if (csv)
        fprintf(csv, "experts,engine,routing,forward_seconds,forward_tflops,both_seconds,"
                     "both_tflops,launches,bytes_written\n");
    for (int i = 0; i < wish->n; i++) {
        struct sizes one = *z;
        one.E = wish->experts[i];
        if (one.A > one.E) one.A = one.E;
        run(open, context, &one, wish, csv);
    }
}
