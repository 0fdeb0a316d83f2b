/* Products in eight bits on the CPU: those of operands that were rounded beforehand, in FP64. What
 * rounding is, tests/formats.c has; here it is which blocks each operand of each product gets. */
#include "config.h"
#include "backend/backend.h"
#include "backend/formats.h"
#include "base/memory.h"
#include "base/random.h"
#include "tap.h"
#include <math.h>
#include <string.h>

static const struct recipe {
    enum low low;
    const char *name;
} recipes[] = {{LOW_FP8_BLOCK, "fp8_block"}, {LOW_MXFP8, "mxfp8"}};

static uint64_t drawn;

/* Not symmetric, with outliers. */
static void draw(float *x, size_t n) {
    for (size_t i = 0; i < n; i++, drawn++)
        x[i] = random_normal(8, RANDOM_TEST, drawn) * (drawn % 89 == 0 ? 50 : 1) + 0.1f;
}

static float *array(struct backend *be, int rows, int cols) {
    size_t n = (size_t)rows * (size_t)cols;
    float *x = be->alloc(be, n * sizeof *x);
    draw(x, n);
    return x;
}

/* A matrix operand: x[rows, cols]. */
struct matrix {
    const float *x;
    int rows, cols;
};

/* The same as the first or the second operand of a product whose sum runs down its rows, or along
 * them. */
static float *rounded(enum low low, struct matrix m, int second, int down) {
    int along = low == LOW_MXFP8 ? 32 : 128, across = second && low == LOW_FP8_BLOCK ? 128 : 1;
    struct format f = {E4M3, low == LOW_MXFP8 ? FORMAT_E8M0 : FORMAT_FP32, down ? along : across,
                       down ? across : along};
    float *out = memory_alloc_array((size_t)m.rows * (size_t)m.cols + 1, sizeof *out);
    format_round(f, m.x, m.rows, m.cols, (size_t)m.cols, out, (size_t)m.cols, NULL, NULL);
    return out;
}

/* |c - sum over k of a b| / |sum|, for c[M, N]; a_down: a is [K, M], else [M, K]; b_down: b is [K,
 * N], else [N, K]. */
static double error(enum low low, const float *c, struct matrix a, int a_down, struct matrix b,
                    int b_down) {
    int M = a_down ? a.cols : a.rows, K = a_down ? a.rows : a.cols, N = b_down ? b.cols : b.rows;
    float *x = rounded(low, a, 0, a_down), *y = rounded(low, b, 1, b_down);
    double difference = 0, norm = 0;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum +=
                    (double)x[a_down ? k * M + i : i * K + k] * y[b_down ? k * N + j : j * K + k];
            double d = c[(size_t)i * (size_t)N + (size_t)j] - sum;
            difference += d * d, norm += sum * sum;
        }
    memory_free(x);
    memory_free(y);
    return norm > 0 ? sqrt(difference / norm) : difference;
}

static void check_products(struct backend *be, const struct recipe *r, int N, int M, int D) {
    float *x = array(be, N, D), *w = array(be, M, D), *dy = array(be, N, M), *y = array(be, N, M),
          *dx = array(be, N, D), *dw = array(be, M, D);
    struct matrix mx = {x, N, D}, mw = {w, M, D}, mdy = {dy, N, M};
    be->low = r->low;
    be->matmul(be, y, x, w, N, M, D);
    be->matmul_dx(be, dx, dy, w, N, M, D, /*accumulate=*/0);
    be->matmul_dw(be, dw, dy, x, N, M, D, /*accumulate=*/0);
    be->low = LOW_NONE;
    double forward = error(r->low, y, mx, 0, mw, 0), gradient = error(r->low, dx, mdy, 0, mw, 1),
           weights = error(r->low, dw, mdy, 1, mx, 1);
    tap_ok(forward < 1e-6, "%s, N %d, M %d, D %d: product %.1e", r->name, N, M, D, forward);
    tap_ok(gradient < 1e-6, "%s: its gradient %.1e", r->name, gradient);
    tap_ok(weights < 1e-6, "%s: that of the weights %.1e", r->name, weights);
    be->matmul(be, y, x, w, N, M, D);
    forward = error(r->low, y, mx, 0, mw, 0);
    tap_ok(forward > 1e-3, "%s: whole where it is not asked for: %.1e off", r->name, forward);
    float *arrays[] = {x, w, dy, y, dx, dw};
    for (int i = 0; i < 6; i++) be->release(be, arrays[i]);
}

/* ---- experts ---- */

enum { D = 200, F = 150, E = 4, N = 52, MOST = 4 * 128 };

/* Expert e has counts[e] of the N tokens, one expert a token. */
static const int counts[E] = {1, 7, 44, 0};

struct experts {
    struct backend *be;
    struct routing routing;
    struct moe *moe;
    float *logits, *x, *router, *up, *down, *rows, *z, *h, *y, *dy, *dz, *dp, *drows, *dup, *ddown;
    int first[E]; /* rows that experts begin at */
};

static void experts_open(struct experts *t, struct backend *be) {
    struct moe_shape s = {.D = D, .F = F, .E = E, .A = 1, .capacity = N};
    int row = 0, n = 0;
    memset(t, 0, sizeof *t);
    t->be = be;
    t->routing.probs = array(be, N, E), t->routing.lse = array(be, N, 1);
    t->routing.p = array(be, N, 1), t->routing.ids = be->alloc(be, N * sizeof(int32_t));
    t->routing.counts = be->alloc(be, E * sizeof(uint32_t));
    t->routing.P = be->alloc(be, E * sizeof(double));
    t->routing.entropy = be->alloc(be, sizeof(double)),
    t->routing.z = be->alloc(be, sizeof(double));
    t->logits = array(be, N, E), t->x = array(be, N, D), t->router = array(be, E, D);
    t->up = array(be, E * 2 * F, D), t->down = array(be, E * D, F);
    t->rows = array(be, MOST, D), t->z = array(be, MOST, 2 * F), t->h = array(be, MOST, F);
    t->y = array(be, MOST, D), t->dy = array(be, MOST, D), t->dz = array(be, MOST, 2 * F);
    t->dp = array(be, MOST, 1), t->drows = array(be, MOST, D);
    t->dup = array(be, E * 2 * F, D), t->ddown = array(be, E * D, F);
    t->moe = be->moe_new(be, s);
    for (int e = 0; e < E; e++) {
        t->first[e] = row;
        for (int i = 0; i < counts[e]; i++) t->routing.ids[n++] = e;
        row += (counts[e] + be->row_unit - 1) / be->row_unit * be->row_unit;
    }
    be->forced = 1; /* all experts alike: the one that is chosen gets p 1 */
    memset(t->router, 0, sizeof(float) * E * D);
    be->route(be, &t->routing, t->logits, t->x, t->router, NULL, N, s);
    be->moe_dispatch(be, t->moe, t->rows, t->x, &t->routing, N);
    be->moe_combine_backward(be, t->moe, t->dy, t->x, N);
}

static void experts_run(struct experts *t, enum low low) {
    struct backend *be = t->be;
    be->low = low;
    be->experts_up(be, t->moe, t->z, t->h, t->rows, t->up);
    be->experts_down(be, t->moe, t->y, t->h, t->down);
    float *h = array(be, MOST, F); /* the forward pass's is looked at later */
    be->experts_down_backward(be, t->moe, t->dz, t->dp, gradient_whole(t->ddown, /*add=*/0), t->dy,
                              t->z, h, t->down);
    be->experts_up_backward(be, t->moe, t->drows, gradient_whole(t->dup, /*add=*/0), t->dz, t->rows,
                            t->up);
    be->release(be, h);
    be->low = LOW_NONE;
}

static void experts_close(struct experts *t) {
    void *all[] = {t->routing.probs,
                   t->routing.lse,
                   t->routing.p,
                   t->routing.ids,
                   t->routing.counts,
                   t->routing.P,
                   t->routing.entropy,
                   t->routing.z,
                   t->logits,
                   t->x,
                   t->router,
                   t->up,
                   t->down,
                   t->rows,
                   t->z,
                   t->h,
                   t->y,
                   t->dy,
                   t->dz,
                   t->dp,
                   t->drows,
                   t->dup,
                   t->ddown};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) t->be->release(t->be, all[i]);
    t->be->moe_free(t->be, t->moe);
    t->be->forced = 0;
}

static struct matrix rows_of(const struct experts *t, int e, const float *x, int cols) {
    return (struct matrix){x + (size_t)t->first[e] * (size_t)cols, counts[e], cols};
}

/* dz from dh = dy down, both rounded, as backend.h has the expert: p is 1. */
static double dz_error(const struct experts *t, enum low low, int e) {
    int n = counts[e];
    float *dy = rounded(low, rows_of(t, e, t->dy, D), 0, 0),
          *down = rounded(low, (struct matrix){t->down + (size_t)e * D * F, D, F}, 1, 1);
    double difference = 0, norm = 1e-30;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < F; j++) {
            size_t at = (size_t)(t->first[e] + i) * 2 * F + (size_t)j;
            double sum = 0, g = t->z[at], u = t->z[at + F], s = 1 / (1 + exp(-g));
            for (int k = 0; k < D; k++) sum += (double)dy[i * D + k] * down[k * F + j];
            double dg = sum * u * s * (1 + g * (1 - s)), du = sum * g * s;
            difference += pow(t->dz[at] - dg, 2) + pow(t->dz[at + F] - du, 2);
            norm += dg * dg + du * du;
        }
    memory_free(dy);
    memory_free(down);
    return sqrt(difference / norm);
}

static void check_experts(struct backend *be, const struct recipe *r, int row_unit) {
    struct experts t;
    be->row_unit = row_unit;
    experts_open(&t, be);
    experts_run(&t, r->low);
    for (int e = 0; e < E; e++) {
        struct matrix up = {t.up + (size_t)e * 2 * F * D, 2 * F, D},
                      down = {t.down + (size_t)e * D * F, D, F}, x = rows_of(&t, e, t.rows, D),
                      h = rows_of(&t, e, t.h, F), dy = rows_of(&t, e, t.dy, D),
                      dz = rows_of(&t, e, t.dz, 2 * F);
        double z = error(r->low, t.z + (size_t)t.first[e] * 2 * F, x, 0, up, 0),
               y = error(r->low, t.y + (size_t)t.first[e] * D, h, 0, down, 0),
               ddown = error(r->low, t.ddown + (size_t)e * D * F, dy, 1, h, 1),
               gradient = dz_error(&t, r->low, e),
               drows = error(r->low, t.drows + (size_t)t.first[e] * D, dz, 0, up, 1),
               dup = error(r->low, t.dup + (size_t)e * 2 * F * D, dz, 1, x, 1);
        tap_ok(z < 1e-6 && y < 1e-6 && gradient < 1e-5 && drows < 1e-6 && dup < 1e-6,
               "%s, rows at multiples of %d, an expert of %d: z %.1e, y %.1e, dz %.1e, drows %.1e, "
               "dup %.1e",
               r->name, row_unit, counts[e], z, y, gradient, drows, dup);
        /* h is made again, with other roundings in FP32: some values next to a tie get another
         * code */
        tap_ok(ddown < 1e-3, "%s: ddown %.1e", r->name, ddown);
    }
    experts_close(&t);
    be->row_unit = 1;
}

/* With low_z the forward pass is the same to the bit; z is then rounded as it is kept, and its
 * gradient that of the rounded one. */
static void check_kept_z(struct backend *be, const struct recipe *r) {
    struct experts t;
    int along = r->low == LOW_MXFP8 ? 32 : 128;
    struct format f = {E4M3, r->low == LOW_MXFP8 ? FORMAT_E8M0 : FORMAT_FP32, 1, along};
    experts_open(&t, be);
    experts_run(&t, r->low);
    size_t n = (size_t)MOST * 2 * F, bytes = (size_t)MOST * D * sizeof *t.y;
    float *z = memory_alloc(n * sizeof *z), *y = memory_alloc(bytes), worst = 0;
    memcpy(z, t.z, n * sizeof *z);
    memcpy(y, t.y, bytes);
    be->low_z = 1;
    experts_run(&t, r->low);
    be->low_z = 0;
    int last = t.first[E - 1] + counts[E - 1], other = memcmp(z, t.z, n * sizeof *z) != 0;
    for (int i = 0; i < 2 * last; i++) /* gate, up, gate, ... */
        format_round(f, z + (size_t)i * F, 1, F, F, z + (size_t)i * F, F, NULL, NULL);
    for (int e = 0; e < E; e++) worst = fmaxf(worst, (float)dz_error(&t, r->low, e));
    tap_ok(other && memcmp(z, t.z, (size_t)last * 2 * F * sizeof *z) == 0 &&
               memcmp(y, t.y, (size_t)last * D * sizeof *y) == 0 && worst < 1e-5f,
           "%s: z kept in eight bits: the same results, its gradient to %.1e", r->name, worst);
    memory_free(z);
    memory_free(y);
    experts_close(&t);
}

static int same_rows(const float *a, const float *b, int from, int n, int cols) {
    size_t at = (size_t)from * (size_t)cols;
    return memcmp(a + at, b + at, (size_t)n * (size_t)cols * sizeof *a) == 0;
}

static int all(const float *x, size_t n, int nan) {
    for (size_t i = 0; i < n; i++)
        if (nan ? !isnan(x[i]) : x[i] != 0) return 0;
    return 1;
}

/* Rows of zeros, a value that dwarfs its block, a NaN: others do not see them, and they do not get
 * lost. */
static void check_extremes(struct backend *be, const struct recipe *r) {
    enum { LARGE = 2, WHERE = 40 }; /* the expert with 44 rows */
    struct experts t;
    experts_open(&t, be);
    experts_run(&t, r->low);
    size_t bytes = (size_t)MOST * D * sizeof *t.y;
    float *y = memory_alloc(bytes), *dup = memory_alloc(sizeof(float) * E * 2 * F * D);
    memcpy(y, t.y, bytes);
    memcpy(dup, t.dup, sizeof(float) * E * 2 * F * D);
    int row = t.first[LARGE] + 3;
    float *value = t.rows + (size_t)row * D + WHERE, before = *value;
    *value = 1e12f;
    experts_run(&t, r->low);
    tap_ok(same_rows(t.y, y, 0, row, D) && same_rows(t.y, y, row + 1, N - row - 1, D) &&
               !same_rows(t.y, y, row, 1, D) && same_rows(t.dup, dup, 0, LARGE * 2 * F, D),
           "%s: an outlier stays in its row and its expert", r->name);
    double here = 0, beside = 0;
    for (int j = 0; j < 2 * F; j++) {
        const float *gradient = t.dup + ((size_t)LARGE * 2 * F + (size_t)j) * D + WHERE;
        here += fabs((double)gradient[0]), beside += fabs((double)gradient[1]);
    }
    tap_ok(here > 1e20 && beside < 1e17, "%s: and in its column of the weights' gradient", r->name);
    *value = NAN;
    experts_run(&t, r->low);
    tap_ok(same_rows(t.y, y, 0, row, D) && same_rows(t.y, y, row + 1, N - row - 1, D) &&
               all(t.y + (size_t)row * D, D, 1) && same_rows(t.dup, dup, 0, LARGE * 2 * F, D) &&
               all(t.dup + (size_t)LARGE * 2 * F * D, (size_t)2 * F * D, 1),
           "%s: so does a NaN, and its expert's gradient has it", r->name);
    *value = before;
    memset(t.rows, 0, bytes);
    memset(t.dy, 0, bytes);
    experts_run(&t, r->low);
    tap_ok(all(t.z, (size_t)N * 2 * F, 0) && all(t.y, (size_t)N * D, 0) &&
               all(t.drows, (size_t)N * D, 0) && all(t.dup, (size_t)E * 2 * F * D, 0),
           "%s: zeros give zeros", r->name);
    memory_free(y);
    memory_free(dup);
    experts_close(&t);
}

int main(int argc, char **argv) {
    struct grid g;
    tap_open(&argc, &argv);
    grid_open(&g, MPI_COMM_WORLD, 1, 1);
    for (int k = 0; k < 2; k++) {
        struct backend *be = backend_open("cpu", &g, NULL);
        check_products(be, &recipes[k], 70, 300, 200);
        check_products(be, &recipes[k], 1, 33, 129);
        check_products(be, &recipes[k], 256, 128, 64);
        check_experts(be, &recipes[k], 1);
        check_experts(be, &recipes[k], 128);
        check_kept_z(be, &recipes[k]);
        check_extremes(be, &recipes[k]);
        backend_close(be);
    }
    grid_close(&g);
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
