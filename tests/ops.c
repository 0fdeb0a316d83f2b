/* Every operation of the backend under test against the CPU backend, on random data that both hold
 * exactly, outputs poisoned first: relative Frobenius error 1e-5 in FP32, 1e-2 in BF16. */
#include "config.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench/pair.h"
#include "tap.h"
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of one round; documents of these lengths, which add up to N. */
struct round {
    int N, D, F, V, E, A, H, G, K, window;
    int lengths[8];
    int greedy; /* tokens that all go to expert 0 and, with A above 1, others */
};
static const struct round rounds[] = {
    {77, 72, 40, 131, 5, 2, 6, 3, 24, 0, {30, 1, 45, 1}, 0},
    {1, 64, 64, 256, 4, 2, 4, 4, 16, 0, {1}, 0},
    {333, 256, 320, 256, 8, 2, 8, 2, 32, 0, {100, 1, 1, 231}, 200},
    {640, 128, 64, 99, 64, 8, 2, 1, 64, 0, {640}, 0},
    {1000, 512, 384, 257, 8, 2, 4, 1, 128, 0, {511, 1, 488}, 1000},
    {300, 64, 48, 37, 3, 1, 2, 2, 32, 19, {150, 1, 149}, 0},
    {513, 96, 200, 512, 16, 16, 3, 1, 256, 0, {257, 256}, 0},
    {2500, 320, 704, 64, 3, 1, 5, 1, 64, 0, {2500}, 0},
    {700, 64, 128, 50, 200, 3, 1, 1, 64, 0, {700}, 600},
    {260, 2048, 256, 1030, 8, 4, 16, 4, 128, 0, {129, 131}, 0},
    {260, 128, 64, 1030, 256, 4, 2, 1, 128, 0, {260}, 0},
    {90, 64, 64, 40, 1, 1, 1, 1, 64, 0, {90}, 0},
    {130, 96, 64, 40, 4, 2, 2, 1, 48, 0, {70, 60}, 0},
    {130, 80, 64, 40, 4, 2, 2, 2, 80, 0, {1, 129}, 0},
    {130, 192, 64, 40, 4, 2, 2, 1, 96, 40, {70, 60}, 0},
    {130, 112, 64, 40, 4, 2, 2, 2, 112, 0, {130}, 0},
    {0, 64, 64, 256, 4, 2, 4, 4, 16, 0, {0}, 0},
};

struct test {
    struct sides sides, *s;
    struct grid *g;
    struct round r;
    double most; /* tolerance */
    double worst;
    const char *where;
    int bad;
};

/* One result of the round. */
static void check(struct test *t, const char *name, const struct pair *p) {
    double e = pair_error(t->s, p);
    if (!(e <= t->worst)) t->worst = e, t->where = name;
    if (e <= t->most) return;
    tap_note("%s: error %.2e", name, e);
    t->bad++;
}

#define BOTH(...)                         \
    for (int i = 0; i < 2; i++) {         \
        struct backend *be = t->s->be[i]; \
        __VA_ARGS__;                      \
    }
#define AT(p) ((p).at[i])

static int32_t *random_ints(size_t n, int below, uint64_t seed) {
    int32_t *x = memory_alloc_array(n + 1, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (int32_t)(random_bits(seed, RANDOM_TEST, i) % (uint64_t)below);
    return x;
}

static void test_embedding(struct test *t) {
    const struct round r = t->r;
    int32_t *ids = random_ints((size_t)r.N, r.V < 9 ? r.V : 9, 3); /* few letters, as in genomes */
    for (int k = 0; k < r.N; k += 7) ids[k] = r.V - 1;
    struct pair tokens = pair_ints(t->s, ids, (size_t)r.N),
                table = pair_normal(t->s, PAIR_REAL, area(r.V, r.D), 1),
                x = pair_poisoned(t->s, PAIR_REAL, area(r.N, r.D)),
                dx = pair_normal(t->s, PAIR_REAL, area(r.N, r.D), 1),
                dtable = pair_normal(t->s, PAIR_FLOAT, area(r.V, r.D), 1);
    BOTH(be->embed(be, AT(x), AT(table), AT(tokens), r.N, r.D));
    BOTH(be->embed_backward(be, AT(dtable), AT(dx), AT(tokens), r.N, r.D, r.V));
    check(t, "embed", &x);
    check(t, "embed_backward", &dtable);
    struct pair *all[] = {&tokens, &table, &x, &dx, &dtable};
    for (int k = 0; k < 5; k++) pair_free(t->s, all[k]);
    memory_free(ids);
}

static void test_norm(struct test *t) {
    const struct round r = t->r;
    size_t n = area(r.N, r.D);
    struct pair x = pair_normal(t->s, PAIR_REAL, n, 1), delta = pair_normal(t->s, PAIR_REAL, n, 1),
                w = pair_normal(t->s, PAIR_REAL, (size_t)r.D, 1),
                sum = pair_poisoned(t->s, PAIR_REAL, n), y = pair_poisoned(t->s, PAIR_REAL, n),
                rstd = pair_poisoned(t->s, PAIR_FLOAT, (size_t)r.N),
                dy = pair_normal(t->s, PAIR_REAL, n, 1), dx = pair_normal(t->s, PAIR_REAL, n, 1),
                dw = pair_normal(t->s, PAIR_FLOAT, (size_t)r.D, 1);
    BOTH(be->add_norm(be, AT(sum), AT(y), AT(rstd), AT(x), AT(delta), AT(w), 1e-5f, r.N, r.D));
    check(t, "add_norm: sum", &sum);
    check(t, "add_norm: y", &y);
    check(t, "add_norm: rstd", &rstd);
    pair_give(t->s, &sum);
    pair_give(t->s, &rstd);
    BOTH(be->norm_backward(be, AT(dx), AT(dw), AT(dy), AT(sum), AT(rstd), AT(w), r.N, r.D));
    check(t, "norm_backward: dx", &dx);
    check(t, "norm_backward: dw", &dw);
    pair_poison(t->s, &y);
    BOTH(be->add_norm(be, AT(x), AT(y), AT(rstd), AT(x), NULL, AT(w), 1e-5f, r.N, r.D));
    check(t, "add_norm, in place: y", &y);
    struct pair *all[] = {&x, &delta, &w, &sum, &y, &rstd, &dy, &dx, &dw};
    for (int k = 0; k < 9; k++) pair_free(t->s, all[k]);
}

static void test_products(struct test *t) {
    const struct round r = t->r;
    int M = r.V;
    struct pair x = pair_normal(t->s, PAIR_REAL, area(r.N, r.D), 1),
                w = pair_normal(t->s, PAIR_REAL, area(M, r.D), 1),
                y = pair_poisoned(t->s, PAIR_REAL, area(r.N, M)),
                dy = pair_normal(t->s, PAIR_REAL, area(r.N, M), 1),
                dx = pair_poisoned(t->s, PAIR_REAL, area(r.N, r.D)),
                dw = pair_poisoned(t->s, PAIR_FLOAT, area(M, r.D));
    BOTH(be->matmul(be, AT(y), AT(x), AT(w), r.N, M, r.D));
    check(t, "matmul", &y);
    for (int adds = 0; adds < 2; adds++) {
        BOTH(be->matmul_dx(be, AT(dx), AT(dy), AT(w), r.N, M, r.D, adds));
        check(t, adds ? "matmul_dx, added" : "matmul_dx", &dx);
        BOTH(be->matmul_dw(be, AT(dw), AT(dy), AT(x), r.N, M, r.D, adds));
        check(t, adds ? "matmul_dw, added" : "matmul_dw", &dw);
    }
    struct pair *all[] = {&x, &w, &y, &dy, &dx, &dw};
    for (int k = 0; k < 6; k++) pair_free(t->s, all[k]);
}

static void test_attention(struct test *t) {
    const struct round r = t->r;
    struct attention_shape shape = {.H = r.H, .G = r.G, .K = r.K, .window = r.window};
    size_t wide = area(r.N, (r.H + 2 * r.G) * r.K), narrow = area(r.N, r.H * r.K);
    int32_t cu[9] = {0}, *positions = memory_alloc_array((size_t)r.N + 1, sizeof *positions);
    int n = 0;
    for (; n < 8 && r.lengths[n]; n++) {
        cu[n + 1] = cu[n] + r.lengths[n];
        for (int k = cu[n]; k < cu[n + 1]; k++) positions[k] = k - cu[n];
    }
    struct pair at = pair_ints(t->s, positions, (size_t)r.N),
                qkv = pair_normal(t->s, PAIR_REAL, wide, 1),
                out = pair_poisoned(t->s, PAIR_REAL, narrow),
                lse = pair_poisoned(t->s, PAIR_FLOAT, area(r.N, r.H)),
                dout = pair_normal(t->s, PAIR_REAL, narrow, 1),
                dqkv = pair_poisoned(t->s, PAIR_REAL, wide);
    for (int inverse = 0; inverse < 2; inverse++) {
        BOTH(be->rope(be, AT(qkv), AT(at), shape, 10000, r.N, inverse));
        check(t, "rope", &qkv);
        pair_give(t->s, &qkv);
    }
    BOTH(be->documents(be, cu, n));
    BOTH(be->attention(be, AT(out), AT(lse), AT(qkv), shape));
    check(t, "attention", &out);
    check(t, "attention: lse", &lse);
    pair_give(t->s, &out);
    pair_give(t->s, &lse);
    BOTH(be->attention_backward(be, AT(dqkv), AT(dout), AT(out), AT(lse), AT(qkv), shape));
    check(t, "attention_backward", &dqkv);
    struct pair *all[] = {&at, &qkv, &out, &lse, &dout, &dqkv};
    for (int k = 0; k < 6; k++) pair_free(t->s, all[k]);
    memory_free(positions);
}

/* What a router leaves, on both sides. */
struct routed {
    struct pair x, w, logits, bias, probs, lse, ids, p, counts, P, entropy, z;
};

static struct routing routing_of(const struct routed *r, int i) {
    return (struct routing){.probs = r->probs.at[i],
                            .lse = r->lse.at[i],
                            .ids = r->ids.at[i],
                            .p = r->p.at[i],
                            .counts = r->counts.at[i],
                            .P = r->P.at[i],
                            .entropy = r->entropy.at[i],
                            .z = r->z.at[i]};
}

/* Choices that differ although the scores do not nearly tie. */
static int wrong_choices(struct test *t, struct routed *q, int biased) {
    const struct round r = t->r;
    double *probs = pair_values(t->s, &q->probs, 0), *bias = pair_values(t->s, &q->bias, 0),
           *a = pair_values(t->s, &q->ids, 0), *b = pair_values(t->s, &q->ids, 1);
    int wrong = 0;
    for (int k = 0; k < r.N * r.A; k++) {
        if (a[k] == b[k]) continue;
        const double *row = probs + area(k / r.A, r.E);
        int in_range = b[k] >= 0 && b[k] < r.E, ascending = k % r.A == 0 || b[k] > b[k - 1];
        double least = 1e9, most = -1e9; /* chosen least by the CPU, left out most */
        for (int e = 0; e < r.E; e++) {
            int chosen = 0;
            for (int c = 0; c < r.A; c++) chosen |= (int)a[k / r.A * r.A + c] == e;
            double score = row[e] + (biased ? bias[e] : 0);
            if (chosen && score < least) least = score;
            if (!chosen && score > most) most = score;
        }
        wrong += !in_range || !ascending || least - most > 1e-5;
    }
    double *all[] = {probs, bias, a, b};
    for (int k = 0; k < 4; k++) memory_free(all[k]);
    return wrong;
}

static void run_route(struct test *t, struct routed *q, int biased) {
    const struct round r = t->r;
    struct moe_shape shape = {.D = r.D, .F = r.F, .E = r.E, .A = r.A, .capacity = r.N};
    BOTH(struct routing o = routing_of(q, i); be->route(be, &o, AT(q->logits), AT(q->x), AT(q->w),
                                                        biased ? AT(q->bias) : NULL, r.N, shape));
}

static struct routed test_route(struct test *t) {
    const struct round r = t->r;
    size_t NE = area(r.N, r.E), NA = area(r.N, r.A), E = (size_t)r.E;
    struct routed q = {.x = pair_normal(t->s, PAIR_REAL, area(r.N, r.D), 1),
                       .w = pair_normal(t->s, PAIR_REAL, area(r.E, r.D), 0.1f),
                       .bias = pair_normal(t->s, PAIR_FLOAT, E, 0.05f),
                       .logits = pair_poisoned(t->s, PAIR_FLOAT, NE),
                       .probs = pair_poisoned(t->s, PAIR_FLOAT, NE),
                       .lse = pair_poisoned(t->s, PAIR_FLOAT, (size_t)r.N),
                       .ids = pair_poisoned(t->s, PAIR_INT, NA),
                       .p = pair_poisoned(t->s, PAIR_FLOAT, NA),
                       .counts = pair_poisoned(t->s, PAIR_INT, E),
                       .P = pair_poisoned(t->s, PAIR_DOUBLE, E),
                       .entropy = pair_poisoned(t->s, PAIR_DOUBLE, 1),
                       .z = pair_poisoned(t->s, PAIR_DOUBLE, 1)};
    double most = t->most;
    t->most = 1e-5; /* FP32 on both sides, from the same inputs */
    for (int biased = 1; biased >= 0; biased--) {
        run_route(t, &q, biased);
        check(t, "route: probs", &q.probs);
        check(t, "route: lse", &q.lse);
        int wrong = wrong_choices(t, &q, biased);
        if (wrong) tap_note("route: %d wrong choices", wrong), t->bad++;
    }
    /* the same experts on both sides; most tokens to the first ones where the round says so */
    int32_t *ids = memory_alloc_array(NA + 1, sizeof *ids);
    double *chosen = pair_values(t->s, &q.ids, 0);
    for (size_t k = 0; k < NA; k++)
        ids[k] = (int)k < r.greedy * r.A ? (int32_t)(k % (size_t)r.A) : (int32_t)chosen[k];
    pair_free(t->s, &q.ids);
    q.ids = pair_ints(t->s, ids, NA);
    pair_poison(t->s, &q.counts);
    pair_poison(t->s, &q.P);
    for (int i = 0; i < 2; i++) t->s->be[i]->forced = 1;
    run_route(t, &q, 0);
    for (int i = 0; i < 2; i++) t->s->be[i]->forced = 0;
    if (pair_differ(t->s, &q.counts) + pair_differ(t->s, &q.ids))
        tap_note("route: counts or forced experts differ"), t->bad++;
    check(t, "route: p", &q.p);
    check(t, "route: P", &q.P);
    check(t, "route: entropy", &q.entropy);
    check(t, "route: z", &q.z);
    t->most = most;
    struct pair *same[] = {&q.probs, &q.lse, &q.p, &q.P, &q.entropy, &q.z};
    for (int k = 0; k < 6; k++) pair_give(t->s, same[k]);
    memory_free(chosen);
    memory_free(ids);
    return q;
}

static void routed_free(struct test *t, struct routed *q) {
    struct pair *all[] = {&q->x,   &q->w, &q->logits, &q->bias, &q->probs,   &q->lse,
                          &q->ids, &q->p, &q->counts, &q->P,    &q->entropy, &q->z};
    for (int k = 0; k < 12; k++) pair_free(t->s, all[k]);
}

static void test_balance(struct test *t, struct routed *q) {
    const struct round r = t->r;
    double most = t->most;
    for (int hf = 0; hf < 2; hf++) {
        struct pair dprobs = pair_poisoned(t->s, PAIR_FLOAT, (size_t)r.E),
                    dz = pair_poisoned(t->s, PAIR_FLOAT, 1), aux = pair_zeros(t->s, PAIR_DOUBLE, 2),
                    entropy = pair_zeros(t->s, PAIR_DOUBLE, 1),
                    counts = pair_zeros(t->s, PAIR_INT, (size_t)r.E);
        struct balance b = {
            .L = 1, .E = r.E, .A = r.A, .hf = hf, .coef = 0.02, .z_coef = 0.001, .weight = 0.25};
        t->most = 1e-6;
        for (int twice = 0; twice < 2; twice++)
            BOTH(struct tally tally = {.aux = AT(aux),
                                       .z = (double *)AT(aux) + 1,
                                       .entropy = AT(entropy),
                                       .counts = AT(counts)};
                 be->balance(be, AT(dprobs), AT(dz), tally, AT(q->counts), AT(q->counts), AT(q->P),
                             AT(q->z), AT(q->entropy), b));
        check(t, "balance: dprobs", &dprobs);
        check(t, "balance: dz", &dz);
        check(t, "balance: sums", &aux);
        check(t, "balance: entropy", &entropy);
        check(t, "balance: counts", &counts);
        t->most = most;
        struct pair dlogits = pair_poisoned(t->s, PAIR_FLOAT, area(r.N, r.E)),
                    dp = pair_normal(t->s, PAIR_FLOAT, area(r.N, r.A), 1),
                    dx = pair_normal(t->s, PAIR_REAL, area(r.N, r.D), 0.1f),
                    dw = pair_normal(t->s, PAIR_FLOAT, area(r.E, r.D), 1);
        struct moe_shape shape = {.D = r.D, .F = r.F, .E = r.E, .A = r.A, .capacity = r.N};
        pair_give(t->s, &dprobs);
        pair_give(t->s, &dz);
        for (int adds = 1; adds >= 0; adds--) {
            BOTH(struct routing o = routing_of(q, i);
                 be->route_backward(be, AT(dx), AT(dw), AT(dlogits), &o, AT(dp), AT(dprobs), AT(dz),
                                    AT(q->x), AT(q->w), r.N, shape, adds));
            check(t, "route_backward: dx", &dx);
            check(t, "route_backward: dw", &dw);
        }
        struct pair *all[] = {&dprobs, &dz, &aux, &entropy, &counts, &dlogits, &dp, &dx, &dw};
        for (int k = 0; k < 9; k++) pair_free(t->s, all[k]);
    }
}

static size_t rows_of(const struct test *t, const struct routed *q) {
    size_t n = area(t->r.N, t->r.A);
    int32_t *ids = memory_alloc_array(n + 1, sizeof *ids);
    t->s->be[0]->download(t->s->be[0], ids, q->ids.at[0], n * sizeof *ids);
    size_t rows = pair_rows(t->s, ids, n, t->r.E);
    memory_free(ids);
    return rows;
}

/* Dispatch, experts, combine, and back; each stage from the same values on both sides. */
static void test_experts(struct test *t, struct routed *q) {
    const struct round r = t->r;
    struct moe_shape shape = {.D = r.D, .F = r.F, .E = r.E, .A = r.A, .capacity = r.N};
    struct moe *moe[2];
    size_t R = rows_of(t, q), D = (size_t)r.D, F = (size_t)r.F, E = (size_t)r.E;
    float scale = 1 / sqrtf((float)r.D);
    struct pair up = pair_normal(t->s, PAIR_REAL, E * 2 * F * D, scale),
                down = pair_normal(t->s, PAIR_REAL, E * D * F, scale),
                rows = pair_poisoned(t->s, PAIR_REAL, R * D),
                z = pair_poisoned(t->s, PAIR_REAL, R * 2 * F),
                h = pair_poisoned(t->s, PAIR_REAL, R * F),
                y = pair_poisoned(t->s, PAIR_REAL, R * D),
                out = pair_poisoned(t->s, PAIR_REAL, area(r.N, r.D)),
                dout = pair_normal(t->s, PAIR_REAL, area(r.N, r.D), 1),
                dy = pair_poisoned(t->s, PAIR_REAL, R * D),
                dz = pair_poisoned(t->s, PAIR_REAL, R * 2 * F),
                dp_rows = pair_poisoned(t->s, PAIR_FLOAT, R),
                ddown = pair_poisoned(t->s, PAIR_FLOAT, E * D * F),
                drows = pair_poisoned(t->s, PAIR_REAL, R * D),
                dup = pair_poisoned(t->s, PAIR_FLOAT, E * 2 * F * D),
                dx = pair_poisoned(t->s, PAIR_REAL, area(r.N, r.D)),
                dp = pair_poisoned(t->s, PAIR_FLOAT, area(r.N, r.A));
    BOTH(moe[i] = be->moe_new(be, shape));
    BOTH(struct routing o = routing_of(q, i);
         be->moe_dispatch(be, moe[i], AT(rows), AT(q->x), &o, r.N));
    check(t, "moe_dispatch", &rows);
    BOTH(be->experts_up(be, moe[i], AT(z), AT(h), AT(rows), AT(up)));
    check(t, "experts_up: z", &z);
    check(t, "experts_up: h", &h);
    pair_give(t->s, &z);
    pair_give(t->s, &h);
    BOTH(be->experts_down(be, moe[i], AT(y), AT(h), AT(down)));
    check(t, "experts_down", &y);
    pair_give(t->s, &y);
    BOTH(be->moe_combine(be, moe[i], AT(out), AT(y), r.N));
    check(t, "moe_combine", &out);
    BOTH(be->moe_combine_backward(be, moe[i], AT(dy), AT(dout), r.N));
    check(t, "moe_combine_backward", &dy);
    for (int adds = 0; adds < 2; adds++) {
        struct pair room = pair_poisoned(t->s, PAIR_REAL, R * F);
        BOTH(be->experts_down_backward(be, moe[i], AT(dz), AT(dp_rows),
                                       gradient_whole(AT(ddown), adds), AT(dy), AT(z), AT(room),
                                       AT(down)));
        check(t, "experts_down_backward: dz", &dz);
        check(t, "experts_down_backward: dp", &dp_rows);
        check(t, adds ? "experts_down_backward: dw, added" : "experts_down_backward: dw", &ddown);
        pair_free(t->s, &room);
    }
    pair_give(t->s, &dz);
    for (int adds = 0; adds < 2; adds++) {
        BOTH(be->experts_up_backward(be, moe[i], AT(drows), gradient_whole(AT(dup), adds), AT(dz),
                                     AT(rows), AT(up)));
        check(t, "experts_up_backward: drows", &drows);
        check(t, adds ? "experts_up_backward: dw, added" : "experts_up_backward: dw", &dup);
    }
    pair_give(t->s, &drows);
    pair_give(t->s, &dp_rows);
    BOTH(be->moe_dispatch_backward(be, moe[i], AT(dx), AT(dp), AT(drows), AT(dp_rows), r.N));
    check(t, "moe_dispatch_backward: dx", &dx);
    check(t, "moe_dispatch_backward: dp", &dp);
    BOTH(be->moe_free(be, moe[i]));
    struct pair *all[] = {&up, &down, &rows, &z,       &h,     &y,     &out, &dout,
                          &dy, &dz,   &dx,   &dp_rows, &ddown, &drows, &dup, &dp};
    for (int k = 0; k < 16; k++) pair_free(t->s, all[k]);
}

static void test_head(struct test *t) {
    const struct round r = t->r;
    int32_t *labels = random_ints((size_t)r.N, r.V, 5);
    for (int k = 0; k < r.N; k += 5) labels[k] = -100;
    struct pair x = pair_normal(t->s, PAIR_REAL, area(r.N, r.D), 1),
                w = pair_normal(t->s, PAIR_REAL, area(r.V, r.D), 0.2f),
                targets = pair_ints(t->s, labels, (size_t)r.N),
                weights = pair_normal(t->s, PAIR_FLOAT, (size_t)r.N, 1),
                scale = pair_normal(t->s, PAIR_FLOAT, 1, 0.03f),
                dx = pair_poisoned(t->s, PAIR_REAL, area(r.N, r.D)),
                dw = pair_poisoned(t->s, PAIR_FLOAT, area(r.V, r.D)),
                loss = pair_zeros(t->s, PAIR_DOUBLE, 1),
                each = pair_poisoned(t->s, PAIR_DOUBLE, (size_t)r.N);
    for (int adds = 0; adds < 2; adds++) {
        BOTH(be->head(be, AT(dx), AT(dw), AT(loss), NULL, AT(x), AT(w), AT(targets), AT(weights),
                      AT(scale), r.N, r.V, r.D, adds));
        check(t, "head: dx", &dx);
        check(t, adds ? "head: dw, added" : "head: dw", &dw);
    }
    BOTH(be->head(be, NULL, NULL, AT(loss), AT(each), AT(x), AT(w), AT(targets), AT(weights), NULL,
                  r.N, r.V, r.D, 0));
    double most = t->most;
    t->most = 1e-5; /* logits and losses are FP32 on both sides */
    check(t, "head: loss", &loss);
    check(t, "head: each token's loss", &each);
    t->most = most;
    struct pair *all[] = {&x, &w, &targets, &weights, &scale, &dx, &dw, &loss, &each};
    for (int k = 0; k < 9; k++) pair_free(t->s, all[k]);
    memory_free(labels);
}

static void test_optimizer(struct test *t) {
    const struct round r = t->r;
    size_t n = area(r.V, r.D) + 3;
    struct pair master = pair_normal(t->s, PAIR_FLOAT, n, 1),
                weight = pair_poisoned(t->s, PAIR_REAL, n),
                m = pair_normal(t->s, PAIR_FLOAT, n, 0.1f), v = pair_zeros(t->s, PAIR_FLOAT, n),
                grad = pair_normal(t->s, PAIR_FLOAT, n, 1), norm = pair_zeros(t->s, PAIR_DOUBLE, 3),
                factor = pair_poisoned(t->s, PAIR_FLOAT, 1);
    struct adamw a = {.lr = 1e-2f,
                      .beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .eps = 1e-8f,
                      .decay = 0.1f,
                      .correction1 = 0.271f,
                      .correction2 = 0.142625f};
    double most = t->most, clip[] = {1.5, 0, 1e9};
    t->most = 1e-6;
    BOTH(be->sum_squares(be, AT(norm), AT(grad), n));
    check(t, "sum_squares", &norm);
    BOTH(be->add(be, AT(m), AT(grad), n));
    check(t, "add", &m);
    BOTH(be->add(be, (float *)AT(m) + 1, (float *)AT(grad) + 2, n - 2));
    check(t, "add, elsewhere", &m);
    for (int k = 0; k < 3; k++) {
        BOTH(be->decide(be, AT(factor), (double *)AT(norm) + 1, 2, AT(norm), clip[k]));
        check(t, "decide", &factor);
        BOTH(be->adamw(be, AT(master), AT(weight), AT(m), AT(v), AT(grad), AT(factor), n, a));
        check(t, "adamw: master", &master);
        check(t, "adamw: m", &m);
        check(t, "adamw: v", &v);
    }
    BOTH(be->adamw(be, AT(master), NULL, AT(m), AT(v), AT(grad), AT(factor), n, a));
    check(t, "adamw: master, without a weight", &master);
    t->most = most;
    check(t, "adamw: weight", &weight);
    /* a sum that is not finite: nothing changes */
    double *before = pair_values(t->s, &master, 1), nan = NAN;
    t->s->be[1]->upload(t->s->be[1], (double *)norm.at[1] + 2, &nan, sizeof nan);
    t->s->be[1]->decide(t->s->be[1], factor.at[1], (double *)norm.at[1] + 1, 2, norm.at[1], 1);
    t->s->be[1]->adamw(t->s->be[1], master.at[1], weight.at[1], m.at[1], v.at[1], grad.at[1],
                       factor.at[1], n, a);
    double *after = pair_values(t->s, &master, 1), *f = pair_values(t->s, &factor, 1);
    if (f[0] != -1 || memcmp(before, after, n * sizeof *before) != 0)
        tap_note("adamw: a step with NaN was applied, factor %g", f[0]), t->bad++;
    memory_free(before);
    memory_free(after);
    memory_free(f);
    struct pair *all[] = {&master, &weight, &m, &v, &grad, &norm, &factor};
    for (int k = 0; k < 7; k++) pair_free(t->s, all[k]);
}

static void test_round(struct test *t, const struct round *r) {
    struct grid *g = t->g;
    t->r = *r;
    t->sides.be[0] = backend_open("cpu", g, NULL);
    t->sides.be[1] = trial_backend(g);
    t->s = &t->sides;
    t->most = t->sides.be[1]->real_bytes == 2 ? 1e-2 : 1e-5;
    struct work w = {.N = r->N,
                     .longest = r->N / 3,
                     .D = r->D,
                     .F = r->F,
                     .E = r->E,
                     .A = r->A,
                     .V = r->V,
                     .theta = 10000,
                     .backward = 1,
                     .attention = {.H = r->H, .G = r->G, .K = r->K, .window = r->window}};
    BOTH(be->reserve(be, w));
    t->s->be[0]->row_unit = t->s->be[1]->row_unit;
    const struct {
        const char *name;
        void (*run)(struct test *t);
    } tests[] = {{"embedding", test_embedding}, {"norm", test_norm}, {"products", test_products},
                 {"attention", test_attention}, {"head", test_head}, {"optimizer", test_optimizer}};
    for (size_t k = 0; k < sizeof tests / sizeof *tests; k++) {
        t->worst = 0, t->where = "", t->bad = 0;
        tests[k].run(t);
        tap_ok(t->bad == 0, "N %d, D %d: %s: worst error %.1e (%s)", r->N, r->D, tests[k].name,
               t->worst, t->where);
    }
    t->worst = 0, t->where = "", t->bad = 0;
    struct routed q = test_route(t);
    tap_ok(t->bad == 0, "N %d, E %d, A %d: route: worst error %.1e (%s)", r->N, r->E, r->A,
           t->worst, t->where);
    t->worst = 0, t->where = "", t->bad = 0;
    test_balance(t, &q);
    tap_ok(t->bad == 0, "N %d, E %d, A %d: balance: worst error %.1e (%s)", r->N, r->E, r->A,
           t->worst, t->where);
    t->worst = 0, t->where = "", t->bad = 0;
    test_experts(t, &q);
    tap_ok(t->bad == 0, "N %d, D %d, F %d, E %d, A %d: experts (%s): worst error %.1e (%s)", r->N,
           r->D, r->F, r->E, r->A,
           t->s->be[1]->row_unit == 1                          ? "one by one"
           : strstr(t->s->be[1]->engines, "not fused") != NULL ? "grouped, not fused"
                                                               : "grouped",
           t->worst, t->where);
    routed_free(t, &q);
    BOTH(backend_close(be));
}

int main(int argc, char **argv) {
    enum { ROUNDS = sizeof rounds / sizeof *rounds };
    struct grid g;
    struct test t = {.g = &g};
    tap_open(&argc, &argv);
    if (!getenv("TEST_BACKEND")) tap_skip_all("the CPU backend is the definition; needs a GPU");
    grid_open(&g, MPI_COMM_WORLD, 1, 1);
    for (int k = 0; k < ROUNDS; k++)
        if (tap_wanted(argc, argv, k + 1, ROUNDS)) test_round(&t, &rounds[k]);
    grid_close(&g);
    return tap_close();
}
