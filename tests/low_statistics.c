/* What eight bits do to operands (low_statistics of the backend table): of each place that an
 * operand has, the sums against those of src/backend/formats.c over what lies there, counts and
 * scales to the bit; h and dz, which a GPU has in eight bits alone, against the CPU's, which has
 * the same inputs. */
#include "config.h"
#include "backend/formats.h"
#include "base/memory.h"
#include "base/random.h"
#include "tap.h"
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 200, D = 256, F = 384, E = 4, A = 2, LARGE = 70000, NARROW = 128 };
static const struct moe_shape shape = {.D = D, .F = F, .E = E, .A = A, .capacity = N};

static uint64_t drawn;

/* Numbers that BF16 has; some are `far` times as large. */
static float *draw(size_t n, float scale, float far) {
    float *x = memory_alloc_array(n, sizeof *x);
    for (size_t i = 0; i < n; i++, drawn++) {
        uint32_t bits;
        x[i] = scale * random_normal(7, RANDOM_TEST, drawn) * (drawn % 389 == 0 ? far : 1);
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0xffff0000u;
        memcpy(&x[i], &bits, sizeof bits);
    }
    return x;
}

static real_t *sent(struct backend *be, const float *x, size_t n) {
    real_t *to = be->alloc(be, n * be->real_bytes);
    be->upload_real(be, to, x, n);
    return to;
}

static real_t *poisoned(struct backend *be, size_t n) {
    float *x = memory_alloc_array(n, sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = NAN;
    real_t *to = sent(be, x, n);
    memory_free(x);
    return to;
}

/* The backend's sums of an operand, begun at 0, as often as it says. */
static void sums_of(struct backend *be, enum low low, struct low_operand o, int times,
                    double sums[N_LOW_SUMS]) {
    double *on_device = be->alloc(be, N_LOW_SUMS * sizeof *sums);
    be->low = low;
    for (int i = 0; i < times; i++) be->low_statistics(be, on_device, o);
    be->low = LOW_NONE;
    be->download(be, sums, on_device, N_LOW_SUMS * sizeof *sums);
    be->release(be, on_device);
}

static struct format format_of(enum low low, int weights) {
    int along = low == LOW_MXFP8 ? 32 : 128, across = low == LOW_FP8_BLOCK && weights ? 128 : 1;
    return (struct format){E4M3, low == LOW_MXFP8 ? FORMAT_E8M0 : FORMAT_FP32, across, along};
}

/* The operand, x[n, rows, cols] on the device, against format_losses; twice into the same sums, and
 * the same bits again. */
static void check_exact(struct backend *be, enum low low, struct low_operand o, const real_t *x,
                        int n, int rows, int cols, const char *name) {
    size_t area = (size_t)rows * (size_t)cols;
    float *host = memory_alloc_array((size_t)n * area + 1, sizeof *host);
    double expected[N_LOW_SUMS] = {0}, found[N_LOW_SUMS], again[N_LOW_SUMS];
    int wrong = 0;
    be->download_real(be, host, x, (size_t)n * area);
    for (int times = 0; times < 2; times++)
        for (int e = 0; e < n; e++)
            format_losses(format_of(low, o.place == LOW_WEIGHTS), host + (size_t)e * area, rows,
                          cols, (size_t)cols, expected);
    sums_of(be, low, o, 2, found);
    sums_of(be, low, o, 2, again);
    for (int i = 0; i < N_LOW_SUMS; i++) {
        int rounds = i == LOW_ERROR2 || i == LOW_SQUARES;
        if (rounds ? fabs(found[i] - expected[i]) <= 1e-9 * expected[i] : found[i] == expected[i])
            continue;
        tap_note("sum %d is %.17g, not %.17g", i, found[i], expected[i]);
        wrong++;
    }
    tap_ok(wrong == 0 && memcmp(found, again, sizeof found) == 0,
           "%s: %g values, %g underflow, %g the largest, %g not finite, error %.3g", name,
           found[LOW_VALUES] / 2, found[LOW_UNDERFLOWS] / 2, found[LOW_LARGEST] / 2,
           found[LOW_NONFINITE] / 2, sqrt(found[LOW_ERROR2] / found[LOW_SQUARES]));
    memory_free(host);
}

static void check_dense(struct backend *be, enum low low, int rows, int cols, int odd) {
    float *x = draw((size_t)rows * (size_t)cols + 1, 1e-3f, 3000);
    char name[80];
    for (int i = 0; odd && i < cols; i++) x[i] = 0, x[2 * cols + i] *= 0x1p-120f;
    if (odd) x[cols + 3] = NAN, x[3 * cols + 130] = -INFINITY, x[4 * cols] = 1e5f;
    real_t *there = sent(be, x, (size_t)rows * (size_t)cols);
    snprintf(name, sizeof name, "%d x %d%s", rows, cols, odd ? ", odd values" : "");
    check_exact(be, low,
                (struct low_operand){.place = LOW_TOKENS, .x = there, .rows = rows, .cols = cols},
                there, 1, rows, cols, name);
    be->release(be, there);
    memory_free(x);
}

static void check_weights(struct backend *be, enum low low, int n, int rows, int cols) {
    size_t all = (size_t)n * (size_t)rows * (size_t)cols;
    float *w = draw(all, 0.02f, 3000);
    char name[80];
    if (n > 1) w[all - 1] = INFINITY;
    memset(w, 0, 128 * (size_t)cols * sizeof *w);
    real_t *there = sent(be, w, all);
    snprintf(name, sizeof name, "weights %d x %d x %d", n, rows, cols);
    check_exact(
        be, low,
        (struct low_operand){.place = LOW_WEIGHTS, .x = there, .n = n, .rows = rows, .cols = cols},
        there, n, rows, cols, name);
    be->release(be, there);
    memory_free(w);
}

/* ---- a layer of experts ---- */

/* What a layer is made of, in host memory, and on one backend. */
struct inputs {
    float *x, *router, *up, *down, *dout;
    int32_t ids[N * A];
};

struct layer {
    struct backend *be;
    struct moe *moe;
    struct routing r;
    float *logits, *dp, *ddown;
    real_t *x, *router, *up, *down, *dout, *rows, *z, *h, *dy, *copies[2];
    const real_t *up_operand, *down_operand; /* what products take */
    int n_rows;                              /* those that pad included */
};

static void new_inputs(struct inputs *in) {
    in->x = draw((size_t)N * D, 1, 8), in->router = draw((size_t)E * D, 0.01f, 8);
    in->up = draw((size_t)E * 2 * F * D, 0.05f, 8), in->down = draw((size_t)E * D * F, 0.05f, 8);
    in->dout = draw((size_t)N * D, 1e-4f, 8);
    for (int i = 0; i < N; i++) /* expert 2 gets nothing */
        in->ids[2 * i] = i % 5 == 0, in->ids[2 * i + 1] = 3;
}

static void free_inputs(struct inputs *in) {
    float *all[] = {in->x, in->router, in->up, in->down, in->dout};
    for (int i = 0; i < 5; i++) memory_free(all[i]);
}

/* w[E, rows, cols], or what the backend has of it in eight bits: copies, to be released. */
static const real_t *operand(struct backend *be, real_t **copies, const real_t *w, int rows,
                             int cols) {
    size_t bytes = be->low_bytes(be, E, rows, cols);
    if (!bytes) return w;
    *copies = be->alloc(be, bytes);
    be->low_weights(be, *copies, w, E, rows, cols);
    return *copies;
}

static void run_layer(struct layer *l, struct backend *be, enum low low, const struct inputs *in) {
    size_t R = be->moe_rows(be, shape);
    int counts[E] = {0}, unit = be->row_unit;
    *l = (struct layer){.be = be, .moe = be->moe_new(be, shape)};
    l->r = (struct routing){.probs = be->alloc(be, N * E * sizeof(float)),
                            .lse = be->alloc(be, N * sizeof(float)),
                            .ids = be->alloc(be, N * A * sizeof(int32_t)),
                            .p = be->alloc(be, N * A * sizeof(float)),
                            .counts = be->alloc(be, E * sizeof(uint32_t)),
                            .P = be->alloc(be, E * sizeof(double)),
                            .entropy = be->alloc(be, sizeof(double)),
                            .z = be->alloc(be, sizeof(double))};
    l->logits = be->alloc(be, N * E * sizeof(float));
    l->x = sent(be, in->x, (size_t)N * D), l->router = sent(be, in->router, (size_t)E * D);
    l->up = sent(be, in->up, (size_t)E * 2 * F * D);
    l->down = sent(be, in->down, (size_t)E * D * F), l->dout = sent(be, in->dout, (size_t)N * D);
    l->rows = poisoned(be, R * D), l->z = poisoned(be, R * 2 * F), l->h = poisoned(be, R * F);
    l->dy = poisoned(be, R * D), l->dp = be->alloc(be, R * sizeof(float));
    l->ddown = be->alloc(be, (size_t)E * D * F * sizeof(float));
    for (int i = 0; i < N * A; i++) counts[in->ids[i]]++;
    for (int e = 0; e < E; e++) l->n_rows += (counts[e] + unit - 1) / unit * unit;
    be->upload(be, l->r.ids, in->ids, sizeof in->ids);
    be->forced = 1;
    be->route(be, &l->r, l->logits, l->x, l->router, NULL, N, shape);
    be->forced = 0;
    be->moe_dispatch(be, l->moe, l->rows, l->x, &l->r, N);
    be->low = low;
    l->up_operand = operand(be, &l->copies[0], l->up, 2 * F, D);
    l->down_operand = operand(be, &l->copies[1], l->down, D, F);
    be->experts_up(be, l->moe, l->z, l->h, l->rows, l->up_operand);
    be->low = LOW_NONE;
}

static void run_back(struct layer *l, enum low low) {
    struct backend *be = l->be;
    be->moe_combine_backward(be, l->moe, l->dy, l->dout, N);
    be->low = low;
    be->experts_down_backward(be, l->moe, l->z, l->dp, gradient_whole(l->ddown, /*add=*/0), l->dy,
                              l->z, l->h, l->down_operand);
    be->low = LOW_NONE;
}

static void free_layer(struct layer *l) {
    void *all[] = {l->r.probs,   l->r.lse, l->r.ids,     l->r.p,      l->r.counts, l->r.P,
                   l->r.entropy, l->r.z,   l->logits,    l->dp,       l->ddown,    l->x,
                   l->router,    l->up,    l->down,      l->dout,     l->rows,     l->z,
                   l->h,         l->dy,    l->copies[0], l->copies[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) l->be->release(l->be, all[i]);
    l->be->moe_free(l->be, l->moe);
}

static struct low_operand of_layer(const struct layer *l, enum low_place place, const real_t *x) {
    return (struct low_operand){.place = place, .x = x, .h = l->h, .m = l->moe};
}

/* h or dz on two backends that have computed it in different roundings; slack: made again of a z
 * that is rounded, too. A scale that is a power of two doubles where the largest magnitude passes
 * 448 of them: BF16 moves some over, and with each all values of its block that reach 448. */
static void check_alike(const struct layer *l, const struct layer *cpu, enum low low,
                        enum low_place place, int slack, const char *name) {
    double a[N_LOW_SUMS], b[N_LOW_SUMS];
    sums_of(l->be, low, of_layer(l, place, l->z), 1, a);
    sums_of(cpu->be, low, of_layer(cpu, place, cpu->z), 1, b);
    double error = sqrt(a[LOW_ERROR2] / a[LOW_SQUARES]),
           of_cpu = sqrt(b[LOW_ERROR2] / b[LOW_SQUARES]);
    double largest = low == LOW_MXFP8 ? 0.25 : 0.05;
    int apart =
        fabs(a[LOW_VALUES] / b[LOW_VALUES] - 1) > 1e-3 ||
        fabs(a[LOW_UNDERFLOWS] - b[LOW_UNDERFLOWS]) > 20 * slack + 0.05 * b[LOW_UNDERFLOWS] ||
        fabs(a[LOW_LARGEST] / b[LOW_LARGEST] - 1) > largest * slack ||
        fabs(a[LOW_SQUARES] / b[LOW_SQUARES] - 1) > 0.02 * slack || fabs(error / of_cpu - 1) > 0.03;
    for (int i = LOW_AMAX; i < N_LOW_SUMS; i++) apart |= fabs(a[i] / b[i] - 1) > 0.05 * slack;
    tap_ok(
        !apart && a[LOW_NONFINITE] == 0 && a[LOW_UNDERFLOWS] > 0,
        "%s as the CPU has it: %g values, %g and %g underflow, %g and %g the largest, error %.4g "
        "and %.4g, largest %.4g and %.4g, scales %.3g and %.3g to %.3g and %.3g",
        name, a[LOW_VALUES], a[LOW_UNDERFLOWS], b[LOW_UNDERFLOWS], a[LOW_LARGEST], b[LOW_LARGEST],
        error, of_cpu, a[LOW_AMAX], b[LOW_AMAX], 1 / a[LOW_INVERSE], 1 / b[LOW_INVERSE],
        a[LOW_SCALE], b[LOW_SCALE]);
}

static void check_layer(struct backend *be, struct backend *cpu_be, enum low low) {
    struct layer l, cpu;
    struct inputs in;
    int here = be->real_bytes == sizeof(float); /* the CPU: h and dz lie there as they are */
    new_inputs(&in);
    run_layer(&l, be, low, &in), run_layer(&cpu, cpu_be, low, &in);
    check_exact(be, low, of_layer(&l, LOW_ROWS, l.rows), l.rows, 1, l.n_rows, D, "experts' rows");
    if (here) check_exact(be, low, of_layer(&l, LOW_H, l.z), l.h, 1, l.n_rows, F, "h");
    if (!here) check_alike(&l, &cpu, low, LOW_H, be->low_z ? 3 : 1, "h");
    run_back(&l, low), run_back(&cpu, low);
    check_exact(be, low, of_layer(&l, LOW_RESULTS, l.dy), l.dy, 1, l.n_rows, D,
                "gradients of results");
    if (here) check_exact(be, low, of_layer(&l, LOW_DZ, l.z), l.z, 1, l.n_rows, 2 * F, "dz");
    if (!here) check_alike(&l, &cpu, low, LOW_DZ, 1, "dz");
    free_layer(&l), free_layer(&cpu);
    free_inputs(&in);
}

/* low_z: z is kept in eight bits. */
static void check_recipe(const struct grid *g, enum low low, int low_z) {
    struct backend *cpu = backend_open("cpu", g, NULL), *be = trial_backend(g);
    struct work w = {.N = N,
                     .longest = N,
                     .D = D,
                     .F = F,
                     .E = E,
                     .A = A,
                     .V = 256,
                     .attention = {.H = 2, .G = 1, .K = 64},
                     .theta = 1e4,
                     .backward = 1,
                     .low = low};
    be->low_z = cpu->low_z = low_z;
    be->reserve(be, w), cpu->reserve(cpu, w);
    tap_note("%s%s", low == LOW_MXFP8 ? "mxfp8" : "fp8_block", low_z ? ", z in eight bits" : "");
    if (!low_z) {
        check_dense(be, low, N, D, 1);
        check_dense(be, low, 1, D, 0);
        check_dense(be, low, 0, D, 0);
        check_dense(be, low, LARGE, NARROW, 0);
        if (low == LOW_MXFP8) check_dense(be, low, N, D + 96, 1);
        check_weights(be, low, 3, 256, 384);
        check_weights(be, low, 1, 256, 128);
    }
    check_layer(be, cpu, low);
    backend_close(be);
    backend_close(cpu);
}

int main(int argc, char **argv) {
    const char *name = getenv("TEST_BACKEND");
    struct grid g;
    tap_open(&argc, &argv);
    grid_open(&g, MPI_COMM_WORLD, 1, 1);
    int capability = backend_capability(name ? name : "cpu", &g);
    for (enum low low = LOW_FP8_BLOCK; low <= LOW_MXFP8; low++)
        for (int low_z = 0; low_z < 2; low_z++)
            if (backend_low_way(capability, low, 0) != LOW_LACKING) check_recipe(&g, low, low_z);
    grid_close(&g);
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
