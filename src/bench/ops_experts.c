/* The router, the ways to the experts and back, and the experts. */
#include "config.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench/operation.h"
#include "bench/routing.h"
#include <math.h>

#define P(k) (d->p[k].at[side])

/* Every operation here begins with what a router reads and leaves. */
enum { X, W, LOGITS, PROBS, LSE, IDS, CHOSEN_P, COUNTS, SUM_P, ENTROPY, Z, FIRST };

static struct moe_shape moe_of(const struct sizes *z) {
    return (struct moe_shape){.D = z->D, .F = z->F, .E = z->E, .A = z->A, .capacity = z->N};
}

static struct routing routing_of(struct data *d, int side) {
    return (struct routing){.probs = P(PROBS),
                            .lse = P(LSE),
                            .ids = P(IDS),
                            .p = P(CHOSEN_P),
                            .counts = P(COUNTS),
                            .P = P(SUM_P),
                            .entropy = P(ENTROPY),
                            .z = P(Z)};
}

/* A experts a token at random, all alike: the load of a balanced router. */
static void choose_experts(struct data *d) {
    size_t A = (size_t)d->z.A, N = (size_t)d->z.N;
    int32_t *ids = memory_alloc_array(N * A, sizeof *ids);
    for (size_t i = 0; i < N; i++) {
        for (size_t a = 0; a < A; a++)
            ids[i * A + a] = (int32_t)random_permute(i, a, (uint64_t)d->z.E);
        routing_sort(ids + i * A, (int)A);
    }
    data_ints(d, ids, N * A);
    d->R = pair_rows(d->s, ids, N * A, d->z.E);
    memory_free(ids);
}

static void run_route(struct data *d, struct backend *be, int side) {
    struct routing r = routing_of(d, side);
    be->route(be, &r, P(LOGITS), P(X), P(W), NULL, d->z.N, moe_of(&d->z));
}

/* Side 0 and 1 must choose the same experts, so near-ties are kept out of a comparison by forcing
 * them; where time is measured the router chooses. */
static void make_route(struct data *d) {
    size_t N = (size_t)d->z.N, E = (size_t)d->z.E, A = (size_t)d->z.A;
    data_read(d, PAIR_REAL, N * (size_t)d->z.D, 1);
    data_read(d, PAIR_REAL, E * (size_t)d->z.D, 1 / sqrtf((float)d->z.D));
    data_write(d, PAIR_FLOAT, N * E);
    data_write(d, PAIR_FLOAT, N * E);
    data_write(d, PAIR_FLOAT, N);
    choose_experts(d);
    data_write(d, PAIR_FLOAT, N * A);
    data_write(d, PAIR_INT, E);
    data_write(d, PAIR_DOUBLE, E);
    data_write(d, PAIR_DOUBLE, 1);
    data_write(d, PAIR_DOUBLE, 1);
}

static double cost_route(const struct sizes *z, double r) {
    return (z->N + z->E) * (double)z->D * r + z->N * (4.0 * z->E + 8.0 * z->A + 4);
}

/* After a router that chose those experts, on both sides the same. */
static void make_routed(struct data *d) {
    make_route(d);
    for (int i = 0; i < 2; i++) {
        struct backend *be = d->s->be[i];
        if (!be) continue;
        int forced = be->forced;
        be->forced = 1;
        run_route(d, be, i);
        be->forced = forced;
    }
    for (int k = PROBS; k < FIRST; k++) pair_give(d->s, &d->p[k]);
    d->results = 0;
}

enum { R_DX = FIRST, R_DW, R_DLOGITS, R_DP, R_DPROBS, R_DZ };

static void make_route_backward(struct data *d) {
    size_t N = (size_t)d->z.N, E = (size_t)d->z.E;
    make_routed(d);
    data_change(d, PAIR_REAL, N * (size_t)d->z.D, 0.1f);
    data_write(d, PAIR_FLOAT, E * (size_t)d->z.D);
    data_read(d, PAIR_FLOAT, N * E, 0); /* scratch */
    data_read(d, PAIR_FLOAT, N * (size_t)d->z.A, 1);
    data_read(d, PAIR_FLOAT, E, 0.01f);
    data_read(d, PAIR_FLOAT, 1, 0.01f);
}

static void run_route_backward(struct data *d, struct backend *be, int side) {
    struct routing r = routing_of(d, side);
    be->route_backward(be, P(R_DX), P(R_DW), P(R_DLOGITS), &r, P(R_DP), P(R_DPROBS), P(R_DZ), P(X),
                       P(W), d->z.N, moe_of(&d->z), /*accumulate=*/0);
}

static double cost_route_backward(const struct sizes *z, double r) {
    return (3.0 * z->N + z->E) * z->D * r + 4.0 * z->E * z->D +
           z->N * (4.0 * z->E + 12.0 * z->A + 4);
}

/* ---- to the experts and back ---- */

static size_t rows(const struct sizes *z) {
    return area(z->N, z->A);
}

static void dispatch(struct data *d, struct backend *be, int side) {
    struct routing r = routing_of(d, side);
    be->moe_dispatch(be, d->moe[side], P(FIRST), P(X), &r, d->z.N);
}

/* rows[R, D] at FIRST */
static void make_moe(struct data *d) {
    make_routed(d);
    data_write(d, PAIR_REAL, d->R * (size_t)d->z.D);
    for (int i = 0; i < 2; i++) {
        if (!d->s->be[i]) continue;
        d->moe[i] = d->s->be[i]->moe_new(d->s->be[i], moe_of(&d->z));
        dispatch(d, d->s->be[i], i);
    }
}

/* Between tokens and rows: each token and each row once. */
static double cost_permute(const struct sizes *z, double r) {
    return ((double)z->N + (double)rows(z)) * z->D * r + 8 * (double)rows(z);
}

static void make_combine(struct data *d) {
    make_moe(d);
    data_read(d, PAIR_REAL, d->R * (size_t)d->z.D, 1);
    d->results = 0;
    data_write(d, PAIR_REAL, area(d->z.N, d->z.D));
}

static void run_combine(struct data *d, struct backend *be, int side) {
    be->moe_combine(be, d->moe[side], P(FIRST + 2), P(FIRST + 1), d->z.N);
}

static void make_combine_backward(struct data *d) {
    make_moe(d);
    d->results = 0;
    data_read(d, PAIR_REAL, area(d->z.N, d->z.D), 1);
    data_write(d, PAIR_REAL, d->R * (size_t)d->z.D);
}

static void run_combine_backward(struct data *d, struct backend *be, int side) {
    be->moe_combine_backward(be, d->moe[side], P(FIRST + 2), P(FIRST + 1), d->z.N);
}

static void make_dispatch_backward(struct data *d) {
    make_moe(d);
    d->results = 0;
    data_read(d, PAIR_REAL, d->R * (size_t)d->z.D, 1);
    data_read(d, PAIR_FLOAT, d->R, 1);
    data_write(d, PAIR_REAL, area(d->z.N, d->z.D));
    data_write(d, PAIR_FLOAT, area(d->z.N, d->z.A));
}

static void run_dispatch_backward(struct data *d, struct backend *be, int side) {
    be->moe_dispatch_backward(be, d->moe[side], P(FIRST + 3), P(FIRST + 4), P(FIRST + 1),
                              P(FIRST + 2), d->z.N);
}

/* ---- the experts ---- */

static size_t weights(const struct sizes *z) { /* of one direction of all experts */
    return area(z->D, z->F) * (size_t)z->E;
}

static void make_up(struct data *d) {
    make_moe(d);
    d->results = 0;
    data_read(d, PAIR_REAL, 2 * weights(&d->z), 1 / sqrtf((float)d->z.D));
    data_write(d, PAIR_REAL, d->R * 2 * (size_t)d->z.F);
    data_write(d, PAIR_REAL, d->R * (size_t)d->z.F);
}

static void run_up(struct data *d, struct backend *be, int side) {
    be->experts_up(be, d->moe[side], P(FIRST + 2), P(FIRST + 3), P(FIRST), P(FIRST + 1));
}

static double cost_down(const struct sizes *z, double r) {
    (void)r;
    return 2 * (double)rows(z) * z->D * z->F;
}

static double cost_up(const struct sizes *z, double r) {
    return 2 * cost_down(z, r);
}

static double cost_up_backward(const struct sizes *z, double r) {
    return 4 * cost_down(z, r);
}

static void make_down(struct data *d) {
    make_moe(d);
    d->results = 0;
    data_read(d, PAIR_REAL, weights(&d->z), 1 / sqrtf((float)d->z.F));
    data_read(d, PAIR_REAL, d->R * (size_t)d->z.F, 1);
    data_write(d, PAIR_REAL, d->R * (size_t)d->z.D);
}

static void run_down(struct data *d, struct backend *be, int side) {
    be->experts_down(be, d->moe[side], P(FIRST + 3), P(FIRST + 2), P(FIRST + 1));
}

enum { D_DOWN = FIRST + 1, D_DY, D_Z, D_H, D_DZ, D_DP, D_DW };

static void make_down_backward(struct data *d) {
    make_moe(d);
    size_t R = d->R, F = (size_t)d->z.F;
    d->results = 0;
    data_read(d, PAIR_REAL, weights(&d->z), 1 / sqrtf((float)d->z.F));
    data_read(d, PAIR_REAL, R * (size_t)d->z.D, 1);
    data_read(d, PAIR_REAL, R * 2 * F, 1);
    data_read(d, PAIR_REAL, R * F, 0); /* room */
    data_write(d, PAIR_REAL, R * 2 * F);
    data_write(d, PAIR_FLOAT, R);
    data_write(d, PAIR_FLOAT, weights(&d->z));
}

static void run_down_backward(struct data *d, struct backend *be, int side) {
    be->experts_down_backward(be, d->moe[side], P(D_DZ), P(D_DP),
                              gradient_whole(P(D_DW), /*add=*/0), P(D_DY), P(D_Z), P(D_H),
                              P(D_DOWN));
}

static void make_up_backward(struct data *d) {
    make_moe(d);
    size_t R = d->R, D = (size_t)d->z.D;
    d->results = 0;
    data_read(d, PAIR_REAL, 2 * weights(&d->z), 1 / sqrtf((float)d->z.D));
    data_read(d, PAIR_REAL, R * 2 * (size_t)d->z.F, 1);
    data_write(d, PAIR_REAL, R * D);
    data_write(d, PAIR_FLOAT, 2 * weights(&d->z));
}

static void run_up_backward(struct data *d, struct backend *be, int side) {
    be->experts_up_backward(be, d->moe[side], P(FIRST + 3), gradient_whole(P(FIRST + 4), /*add=*/0),
                            P(FIRST + 2), P(FIRST), P(FIRST + 1));
}

const struct operation ops_experts[] = {
    {"route", make_route, run_route, cost_route, 0},
    {"route_backward", make_route_backward, run_route_backward, cost_route_backward, 0},
    {"moe_dispatch", make_moe, dispatch, cost_permute, 0},
    {"experts_up", make_up, run_up, cost_up, 1},
    {"experts_down", make_down, run_down, cost_down, 1},
    {"moe_combine", make_combine, run_combine, cost_permute, 0},
    {"moe_combine_backward", make_combine_backward, run_combine_backward, cost_permute, 0},
    {"experts_down_backward", make_down_backward, run_down_backward, cost_up, 1},
    {"experts_up_backward", make_up_backward, run_up_backward, cost_up_backward, 1},
    {"moe_dispatch_backward", make_dispatch_backward, run_dispatch_backward, cost_permute, 0},
};
const size_t n_ops_experts = sizeof ops_experts / sizeof *ops_experts;
