/* Products of MXFP8 by cuBLASLt (src/backend/cuda_mxfp8.c) against those of operands that were
 * rounded beforehand, in FP64: which operand is rounded along what, where its codes and scales lie,
 * and what cuBLASLt is told of them. Where it has no such products another takes its place
 * (stand_in_cublaslt.c). On a GPU (HAVE_DEVICE) with the kernels, else with others in their place
 * (stand_in_mxfp8.c). */
#include "config.h"
#include "backend/cuda.h"
#include "grouped.h"
#include "mxfp8_scales.h"
#include "mxfp8_tiles.h"
#include "mxfp8_up.h"
#include "backend/formats.h"
#include "stand_in_cublaslt.h"
#include "tap.h"
#include <math.h>

/* ---- a backend of what these products need; its memory is the host's, too ---- */

enum { N = 173, E = 4, H = 5, G = 1, K = 32, QKV = H * K + 2 * G * K };
enum { ROWS = 512, MOST = ROWS + 128 };
enum { MOST_D = 256, MOST_F = 128 };
static int D, F; /* of the experts at hand */
/* Rows of each expert, and where they begin. */
static const int counts[E] = {100, 0, 256, 77};
static const int32_t begins[E + 1] = {0, 128, 128, 384, 512};

static void *host_alloc(struct backend *be, size_t bytes) {
    void *p;
    (void)be;
    cuda(cudaMallocManaged(&p, bytes + 1, cudaMemAttachGlobal));
    memset(p, 0xff, bytes); /* NaN */
    return p;
}

static void host_release(struct backend *be, void *p) {
    (void)be;
    cuda(cudaDeviceSynchronize());
    cuda(cudaFree(p));
}

static void host_open(struct backend *be, const struct grid *g) {
    struct cuda_state *s = be->state = memory_alloc(sizeof *s);
    be->grid = g, be->real_bytes = sizeof(half_t);
    be->alloc = host_alloc, be->release = host_release;
    s->real = REAL_BF16;
    s->work = (struct work){.N = N,
                            .D = MOST_D,
                            .F = MOST_F,
                            .E = E,
                            .A = 2,
                            .attention = {.H = H, .G = G, .K = K},
                            .backward = 1,
                            .low = LOW_MXFP8,
                            .way = LOW_FAST,
                            .capability = 100};
    s->eight = &cuda_mxfp8;
    cuda(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    cuda(cudaEventCreateWithFlags(&s->forked, cudaEventDisableTiming));
    for (int i = 0; i < CUDA_SIDES; i++) {
        cuda(cudaStreamCreateWithFlags(&s->sides[i], cudaStreamNonBlocking));
        cuda(cudaEventCreateWithFlags(&s->joined[i], cudaEventDisableTiming));
    }
    cuda_gemm_open(be);
    cuda_mxfp8_reserve(be);
}

static void host_close(struct backend *be) {
    struct cuda_state *s = be->state;
    cuda_mxfp8_close(be);
    cuda_gemm_close(be);
    for (int i = 0; i < CUDA_SIDES; i++) {
        cuda(cudaEventDestroy(s->joined[i]));
        cuda(cudaStreamDestroy(s->sides[i]));
    }
    cuda(cudaEventDestroy(s->forked));
    cuda(cudaStreamDestroy(s->stream));
    memory_free(s);
}

static size_t at_row(int row, int cols) {
    return (size_t)row * (size_t)cols;
}

static uint64_t drawn;

/* Not symmetric, with outliers. */
static half_t *draw(struct backend *be, size_t n) {
    half_t *x = be->alloc(be, n * sizeof *x);
    for (size_t i = 0; i < n; i++, drawn++)
        x[i] = to_half(random_normal(9, RANDOM_TEST, drawn) * (drawn % 89 == 0 ? 50 : 1) + 0.1f);
    return x;
}

/* ---- what is expected ---- */

struct matrix {
    const half_t *x;
    int rows, cols;
};

/* In blocks of 32 that run along the rows, or down the columns. */
static float *rounded(struct matrix m, int down) {
    size_t n = (size_t)m.rows * (size_t)m.cols;
    float *out = memory_alloc_array(n + 1, sizeof *out);
    struct format f = {E4M3, FORMAT_E8M0, down ? 32 : 1, down ? 1 : 32};
    for (size_t i = 0; i < n; i++) out[i] = to_float(m.x[i]);
    format_round(f, out, m.rows, m.cols, (size_t)m.cols, out, (size_t)m.cols, NULL, NULL);
    return out;
}

/* |c - times * sum over k of a b| / |that|, for c[M, N], BF16 or FP32; a_down: a is [K, M], else
 * [M, K]; b_down: b is [K, N], else [N, K]. Infinite where there is a NaN. */
static double error(const void *c, int c_fp32, struct matrix a, int a_down, struct matrix b,
                    int b_down, double times) {
    int M = a_down ? a.cols : a.rows, L = a_down ? a.rows : a.cols, n = b_down ? b.cols : b.rows;
    float *x = rounded(a, a_down), *y = rounded(b, b_down);
    struct error e = {0};
    for (int i = 0; i < M; i++)
        for (int j = 0; j < n; j++) {
            size_t at = (size_t)i * (size_t)n + (size_t)j;
            double sum = 0;
            for (int k = 0; k < L; k++)
                sum +=
                    (double)x[a_down ? k * M + i : i * L + k] * y[b_down ? k * n + j : j * L + k];
            note(&e, c_fp32 ? ((const float *)c)[at] : to_float(((const half_t *)c)[at]),
                 times * sum);
        }
    memory_free(x);
    memory_free(y);
    return relative(&e);
}

static const double in_bf16 = 4e-3, in_fp32 = 1e-5;

/* ---- projections ---- */

static const void *copies_of(struct backend *be, const half_t *w, int n, int rows, int cols) {
    void *copies = be->alloc(be, cuda_low_bytes(&cuda_state(be)->work, n, rows, cols));
    cuda_mxfp8.weights(be, copies, w, n, rows, cols);
    return copies;
}

static void check_projection(struct backend *be, int tokens, int M, int depth) {
    size_t n = (size_t)tokens, m = (size_t)M, d = (size_t)depth;
    half_t *x = draw(be, n * d), *dy = draw(be, n * m), *w = draw(be, m * d),
           *y = be->alloc(be, n * m * sizeof *y), *dx = be->alloc(be, n * d * sizeof *dx);
    float *dw = be->alloc(be, m * d * sizeof *dw);
    const void *copies = copies_of(be, w, 1, M, depth);
    struct matrix mx = {x, tokens, depth}, mdy = {dy, tokens, M}, mw = {w, M, depth};
    cuda_mxfp8.matmul(be, y, x, copies, tokens, M, depth);
    cuda_mxfp8.matmul_dx(be, dx, dy, copies, tokens, M, depth);
    cuda_mxfp8.matmul_dw(be, dw, dy, x, tokens, M, depth, /*accumulate=*/0);
    cuda(cudaDeviceSynchronize());
    double forward = error(y, 0, mx, 0, mw, 0, 1), gradient = error(dx, 0, mdy, 0, mw, 1, 1),
           once = error(dw, 1, mdy, 1, mx, 1, 1);
    cuda_mxfp8.matmul_dw(be, dw, dy, x, tokens, M, depth, /*accumulate=*/1);
    cuda(cudaDeviceSynchronize());
    double twice = error(dw, 1, mdy, 1, mx, 1, 2);
    tap_ok(forward < in_bf16 && gradient < in_bf16 && once < in_fp32 && twice < in_fp32,
           "%d tokens, %d x %d: product %.1e, gradient %.1e, that of weights %.1e, added to %.1e",
           tokens, M, depth, forward, gradient, once, twice);
    void *all[] = {x, dy, w, y, dx, dw, (void *)(uintptr_t)copies};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) be->release(be, all[i]);
}

/* ---- experts ---- */

struct experts {
    half_t *x, *dy, *up, *down, *z, *h, *y, *dz, *drows;
    float *p, *dp, *dup, *ddown;
    const void *up8, *down8;
    int32_t *offsets;
    struct cuda_rows rows;
};

/* Rows that pad are zero. */
static half_t *draw_rows(struct backend *be, int cols) {
    size_t width = (size_t)cols;
    half_t *x = draw(be, ROWS * width);
    for (int e = 0; e < E; e++) {
        size_t end = (size_t)(begins[e] + counts[e]);
        memset(x + end * width, 0, ((size_t)begins[e + 1] - end) * width * sizeof *x);
    }
    return x;
}

static void experts_open(struct experts *t, struct backend *be) {
    t->x = draw_rows(be, D), t->dy = draw_rows(be, D);
    t->up = draw(be, at_row(E * 2 * F, D)), t->down = draw(be, at_row(E * D, F));
    size_t d = MOST * (size_t)D * sizeof(half_t), f = MOST * (size_t)F * sizeof(half_t);
    t->z = be->alloc(be, 2 * f), t->dz = be->alloc(be, 2 * f), t->h = be->alloc(be, f);
    t->y = be->alloc(be, d), t->drows = be->alloc(be, d);
    t->p = be->alloc(be, ROWS * sizeof *t->p), t->dp = be->alloc(be, ROWS * sizeof *t->dp);
    t->dup = be->alloc(be, at_row(E * 2 * F, D) * sizeof *t->dup);
    t->ddown = be->alloc(be, at_row(E * D, F) * sizeof *t->ddown);
    t->offsets = be->alloc(be, sizeof begins);
    memcpy(t->offsets, begins, sizeof begins);
    for (int e = 0; e < E; e++)
        for (int i = begins[e]; i < begins[e + 1]; i++)
            t->p[i] = i - begins[e] < counts[e]
                          ? 0.1f + (float)random_uniform(4, RANDOM_TEST, (uint64_t)i)
                          : 0;
    t->up8 = copies_of(be, t->up, E, 2 * F, D), t->down8 = copies_of(be, t->down, E, D, F);
    t->rows = (struct cuda_rows){.n_local = E,
                                 .shape = {.D = D, .F = F, .E = E, .A = 2, .capacity = N},
                                 .most = MOST,
                                 .offsets = t->offsets,
                                 .row_p = t->p,
                                 .host_offsets = begins};
}

static void experts_close(struct experts *t, struct backend *be) {
    void *all[] = {t->x,
                   t->dy,
                   t->up,
                   t->down,
                   t->z,
                   t->dz,
                   t->h,
                   t->y,
                   t->p,
                   t->dp,
                   t->drows,
                   t->dup,
                   t->ddown,
                   t->offsets,
                   (void *)(uintptr_t)t->up8,
                   (void *)(uintptr_t)t->down8};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) be->release(be, all[i]);
}

static struct matrix of_rows(const half_t *x, int e, int cols) {
    return (struct matrix){x + at_row(begins[e], cols), counts[e], cols};
}

static struct matrix weights_of(const half_t *w, int e, int rows, int cols) {
    return (struct matrix){w + at_row(e * rows, cols), rows, cols};
}

/* h, dz and dp of an expert from z and, for both gradients, dy and the weights. */
static void activation_errors(const struct experts *t, int e, double errors[3]) {
    float *dy = rounded(of_rows(t->dy, e, D), 0), *w = rounded(weights_of(t->down, e, D, F), 1);
    struct error h = {0}, dz = {0}, dp = {0};
    for (int i = 0; i < counts[e]; i++) {
        size_t row = (size_t)(begins[e] + i);
        double p = t->p[row], dot = 0;
        for (int j = 0; j < F; j++) {
            const half_t *z = t->z + 2 * at_row((int)row, F) + j, *dz_here = t->dz + (z - t->z);
            double g = to_float(z[0]), u = to_float(z[F]), s = 1 / (1 + exp(-g)), sum = 0;
            for (int k = 0; k < D; k++) sum += (double)dy[i * D + k] * w[k * F + j];
            note(&h, to_float(t->h[at_row((int)row, F) + (size_t)j]), p * g * s * u);
            note(&dz, to_float(dz_here[0]), p * sum * u * s * (1 + g * (1 - s)));
            note(&dz, to_float(dz_here[F]), p * sum * g * s);
            dot += sum * g * s * u;
        }
        note(&dp, t->dp[row], dot);
    }
    errors[0] = relative(&h), errors[1] = relative(&dz), errors[2] = relative(&dp);
    memory_free(dy);
    memory_free(w);
}

static void run_back(struct experts *t, struct backend *be, int accumulate) {
    cuda_mxfp8.down_backward(be, &t->rows, t->dz, t->dp, gradient_whole(t->ddown, accumulate),
                             t->dy, t->z, t->h, t->down8);
    cuda_mxfp8.up_backward(be, &t->rows, t->drows, gradient_whole(t->dup, accumulate), t->dz, t->x,
                           t->up8);
    cuda(cudaDeviceSynchronize());
}

/* h as the next product has it, in BF16: where gate and up are one launch it lies there in MXFP8.
 */
static half_t *h_of_product(const struct experts *t, const struct backend *be) {
    size_t width = (size_t)F, codes = mxfp8_codes(1, MOST, width), n;
    half_t *h = memory_alloc(ROWS * width * sizeof *h);
    const uint8_t *bytes = (const uint8_t *)t->h, *scales = bytes + (codes + 255) / 256 * 256;
    memcpy(h, t->h, ROWS * width * sizeof *h);
    if (!cuda_state(be)->mxfp8_up) return h;
    struct scale_place *places = scale_places(ROWS, F, &n);
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 32 && places[i].row >= 0; k++) {
            size_t at = (size_t)places[i].row * width + (size_t)(32 * places[i].block + k);
            h[at] = to_half(format_decode(E4M3, bytes[at]) * e8m0_decode(scales[i]));
        }
    memory_free(places);
    return h;
}

static void check_experts(struct backend *be) {
    struct experts t;
    experts_open(&t, be);
    cuda_mxfp8.up(be, &t.rows, t.z, t.h, t.x, t.up8);
    cuda_mxfp8.down(be, &t.rows, t.y, t.h, t.down8);
    cuda(cudaDeviceSynchronize());
    double y[E];
    half_t *made = h_of_product(&t, be);
    for (int e = 0; e < E; e++)
        y[e] = error(t.y + at_row(begins[e], D), 0, of_rows(made, e, F), 0,
                     weights_of(t.down, e, D, F), 0, 1);
    memory_free(made);
    for (int times = 1; times <= 2; times++) {
        run_back(&t, be, times == 2);
        for (int e = 0; e < E; e++) {
            struct matrix up = weights_of(t.up, e, 2 * F, D), x = of_rows(t.x, e, D),
                          h = of_rows(t.h, e, F), dy = of_rows(t.dy, e, D),
                          dz = of_rows(t.dz, e, 2 * F);
            double z = error(t.z + at_row(begins[e], 2 * F), 0, x, 0, up, 0, 1),
                   drows = error(t.drows + at_row(begins[e], D), 0, dz, 0, up, 1, 1),
                   ddown = error(t.ddown + at_row(e * D, F), 1, dy, 1, h, 1, times),
                   dup = error(t.dup + at_row(e * 2 * F, D), 1, dz, 1, x, 1, times), a[3];
            activation_errors(&t, e, a);
            tap_ok(z < in_bf16 && y[e] < in_bf16 && drows < in_bf16 && a[0] < 2 * in_bf16 &&
                       a[1] < 2 * in_bf16 && a[2] < 2 * in_bf16,
                   "an expert of %d rows: z %.1e, h %.1e, y %.1e, dz %.1e, dp %.1e, drows %.1e",
                   counts[e], z, a[0], y[e], a[1], a[2], drows);
            tap_ok(ddown < in_fp32 && dup < in_fp32,
                   "gradients of its weights, %s: ddown %.1e, dup %.1e",
                   times == 2 ? "added to" : "overwritten", ddown, dup);
        }
    }
    experts_close(&t, be);
}

/* With low_z the forward pass is the same to the bit; z is then rounded as it is kept. */
static void check_kept_z(struct backend *be) {
    struct experts t;
    size_t n = at_row(ROWS, F);
    half_t *h = memory_alloc(n * sizeof *h);
    experts_open(&t, be);
    cuda_mxfp8.up(be, &t.rows, t.z, t.h, t.x, t.up8);
    cuda(cudaDeviceSynchronize());
    memcpy(h, t.h, n * sizeof *h);
    float *z = rounded((struct matrix){t.z, ROWS, 2 * F}, 0);
    be->low_z = 1;
    cuda_mxfp8.up(be, &t.rows, t.z, t.h, t.x, t.up8);
    be->low_z = 0;
    cuda(cudaDeviceSynchronize());
    int others = 0;
    for (size_t i = 0; i < 2 * n; i++) others += to_float(t.z[i]) != z[i];
    tap_ok(others == 0 && memcmp(h, t.h, n * sizeof *h) == 0,
           "z kept in eight bits: the same h; %d values are not those of formats.h", others);
    memory_free(z);
    memory_free(h);
    experts_close(&t, be);
}

/* Gate and up in one launch, where there is the kernel or what stands in for it: h is z's, rounded,
 * and what follows is as it was. */
static void check_fused(struct backend *be) {
    struct cuda_state *s = be->state;
    struct experts t;
    const char *why = "";
    s->mxfp8_up = mxfp8_up_open(&why);
    if (!s->mxfp8_up) {
        tap_ok(stand_in_lt.on, "no launch for gate and up: %s", why);
        return;
    }
    experts_open(&t, be);
    cuda_mxfp8.up(be, &t.rows, t.z, t.h, t.x, t.up8);
    cuda(cudaDeviceSynchronize());
    size_t n = at_row(ROWS, F);
    half_t *made = h_of_product(&t, be);
    float *exact = memory_alloc_array(n, sizeof *exact);
    for (size_t i = 0; i < n; i++) {
        size_t row = i / (size_t)F, at = 2 * row * (size_t)F + i % (size_t)F;
        double g = to_float(t.z[at]), u = to_float(t.z[at + (size_t)F]);
        exact[i] = (float)(t.p[row] * g / (1 + exp(-g)) * u);
    }
    const half_t *whole = cuda_mxfp8_h(be, &t.rows, t.z, t.h);
    cuda(cudaDeviceSynchronize());
    struct error in_z = {0}, packed = {0};
    for (size_t i = 0; i < n; i++) note(&in_z, to_float(whole[i]), exact[i]);
    format_round((struct format){E4M3, FORMAT_E8M0, 1, 32}, exact, ROWS, F, (size_t)F, exact,
                 (size_t)F, NULL, NULL);
    for (size_t i = 0; i < n; i++) note(&packed, to_float(made[i]), exact[i]);
    tap_ok(relative(&packed) < 2e-3 && relative(&in_z) < in_bf16,
           "gate and up in one launch: h %.1e, made again of z %.1e", relative(&packed),
           relative(&in_z));
    memory_free(exact);
    memory_free(made);
    experts_close(&t, be);
    check_experts(be);
    mxfp8_up_close(s->mxfp8_up);
    s->mxfp8_up = NULL;
}

static int serves(struct backend *be, int M, int n, int depth, int c_fp32) {
    struct mxfp8_matrix any = {cuda_state(be)->mxfp8[0], cuda_state(be)->mxfp8[0]};
    return cuda_gemm_mxfp8_serves(be, M, n, depth, any, any, any.codes, c_fp32);
}

int main(int argc, char **argv) {
    struct grid g;
    struct backend be = {0};
    tap_open(&argc, &argv);
#if CUBLAS_VERSION < 120800
    tap_skip_all("cuBLASLt has no MXFP8 before CUDA 12.8");
#endif
#ifdef HAVE_DEVICE
    int major = 0;
    if (!getenv("TEST_BACKEND")) tap_skip_all("needs a GPU");
    cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    stand_in_lt.on = major < 10;
    tap_note("%s",
             stand_in_lt.on ? "another's products in place of cuBLASLt's" : "cuBLASLt's products");
#endif
    grid_open(&g, MPI_COMM_WORLD, 1, 1);
#ifndef HAVE_DEVICE
    stand_in_lt.on = 1;
#endif
    stand_in_lt.refuses = argc > 1 && strcmp(argv[1], "refuse") == 0; /* tests/errors.sh */
    host_open(&be, &g);
    tap_ok(!stand_in_lt.on || stand_in_lt.asked == 12, "12 products are asked for beforehand: %d",
           stand_in_lt.asked);
    check_projection(&be, N, QKV, 160);
    check_projection(&be, N, MOST_D, H * K);
    check_projection(&be, 128, QKV, 160);
    check_projection(&be, 1, QKV, 160);
    check_projection(&be, 0, QKV, 160);
    D = 160, F = 96;
    check_experts(&be);
    check_kept_z(&be);
    D = MOST_D, F = MOST_F;
    check_experts(&be);
    check_fused(&be);
    tap_ok(stand_in_lt.wrong == 0, "%d products, %d of them called as cuBLAS does not take them",
           stand_in_lt.products, stand_in_lt.wrong);
    tap_ok(serves(&be, 128, 256, 256, 0) && serves(&be, 256, 128, 128, 1),
           "products that are there");
    if (stand_in_lt.on) {
        stand_in_lt.refuses = 1;
        tap_ok(!serves(&be, 128, 256, 512, 0), "and one that is not");
        stand_in_lt.refuses = 0;
    }
#ifdef HAVE_DEVICE
    if (stand_in_lt.on) {
        stand_in_lt.on = 0;
        tap_ok(!serves(&be, 128, 256, 256, 0), "cuBLASLt has none on this GPU");
    }
#endif
    host_close(&be);
    grid_close(&g);
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
