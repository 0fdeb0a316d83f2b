/* The experts by one product each, on several streams: works on any GPU, and is what the grouped
 * kernels (cuda_grouped.c) are compared with. The choice between the two. */
#include "config.h"
#include "backend/cuda.h"
#include "base/log.h"
#include "grouped_gemm.h"
#include "swiglu.h"

/* For each expert c[e] = a[e] w[e]^T (transposed) or a[e] w[e]: rows a[., K], c[., N], weights [N,
 * K] or [K, N]. */
static void each_rows(struct backend *be, const struct cuda_rows *r, int transposed, int N, int K,
                      const real_t *a, const real_t *w, real_t *c) {
    cuda_fork(be);
    for (int e = 0; e < r->n_local; e++) {
        size_t first = (size_t)r->host_offsets[e];
        cuda_gemm(be, 1 + e % CUDA_SIDES, CUDA_NO_TRANSPOSE, transposed,
                  r->host_offsets[e + 1] - r->host_offsets[e], N, K,
                  real_at(be, a, first * (size_t)K),
                  real_at(be, w, (size_t)e * (size_t)N * (size_t)K), 0,
                  real_at(be, c, first * (size_t)N), /*c_fp32=*/0);
    }
    cuda_join(be);
}

/* dw[e][M, N] (+)= a^T b over the expert's rows, a[., M], b[., N] */
static void each_gradient(struct backend *be, const struct cuda_rows *r, int M, int N,
                          const real_t *a, const real_t *b, float *dw, int accumulate) {
    cuda_fork(be);
    for (int e = 0; e < r->n_local; e++) {
        size_t first = (size_t)r->host_offsets[e];
        cuda_gemm(be, 1 + e % CUDA_SIDES, CUDA_TRANSPOSE, CUDA_NO_TRANSPOSE, M, N,
                  r->host_offsets[e + 1] - r->host_offsets[e], real_at(be, a, first * (size_t)M),
                  real_at(be, b, first * (size_t)N), accumulate ? 1 : 0,
                  dw + (size_t)e * (size_t)M * (size_t)N, /*c_fp32=*/1);
    }
    cuda_join(be);
}

static int n_rows(const struct cuda_rows *r) {
    return r->host_offsets[r->n_local];
}

static void experts_up(struct backend *be, struct moe *m, real_t *z, real_t *h, const real_t *rows,
                       const real_t *up) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_rows r = cuda_moe_rows(be, m);
    each_rows(be, &r, CUDA_TRANSPOSE, 2 * r.shape.F, r.shape.D, rows, up, z);
    swiglu_forward(s->real, h, z, r.row_p, n_rows(&r), r.shape.F, s->stream);
}

static void experts_down(struct backend *be, struct moe *m, real_t *y, const real_t *h,
                         const real_t *down) {
    struct cuda_rows r = cuda_moe_rows(be, m);
    each_rows(be, &r, CUDA_TRANSPOSE, r.shape.D, r.shape.F, h, down, y);
}

static void experts_down_backward(struct backend *be, struct moe *m, real_t *dz, float *dp_rows,
                                  float *ddown, const real_t *dy, const real_t *z, real_t *h,
                                  const real_t *down, int accumulate) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_rows r = cuda_moe_rows(be, m);
    each_rows(be, &r, CUDA_NO_TRANSPOSE, r.shape.F, r.shape.D, dy, down, h); /* h holds dh */
    swiglu_backward(s->real, dz, dp_rows, h, h, z, r.row_p, n_rows(&r), r.shape.F, s->stream);
    each_gradient(be, &r, r.shape.D, r.shape.F, dy, h, ddown, accumulate);
}

static void experts_up_backward(struct backend *be, struct moe *m, real_t *drows, float *dup,
                                const real_t *dz, const real_t *rows, const real_t *up,
                                int accumulate) {
    struct cuda_rows r = cuda_moe_rows(be, m);
    each_gradient(be, &r, 2 * r.shape.F, r.shape.D, dz, rows, dup, accumulate);
    each_rows(be, &r, CUDA_NO_TRANSPOSE, r.shape.D, 2 * r.shape.F, dz, up, drows);
}

/* The deck may ask for the grouped kernels, or have nothing against them. */
static void without_grouped(struct backend *be, const char *why) {
    struct cuda_state *s = cuda_state(be);
    enum experts_engine asked = s->options.experts;
    if (s->grouped) why = "the GPU of another rank does not serve";
    grouped_close(s->grouped);
    s->grouped = NULL;
    if (be->grid->rank == 0 && s->work.low != LOW_NONE)
        die_user(EXIT_CONFIG,
                 "precision.recipe: the grouped kernels compute in eight bits, and cannot here: %s",
                 why);
    if (be->grid->rank == 0 && asked == EXPERTS_GROUPED)
        die_user(EXIT_CONFIG, "engine.experts: grouped: %s", why);
    if (asked == EXPERTS_AUTO) log_info("experts", "cublaslt, not grouped: %s", why);
}

void cuda_experts_reserve(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    char reason[200];
    const char *why = reason;
    if (cuda_grouped_serves(&s->work, be->real_bytes, &s->options, reason, sizeof reason))
        s->grouped = grouped_open(&why);
    if (agree_any(be->grid, !s->grouped)) without_grouped(be, why);
    user_agree();
    be->row_unit = cuda_row_unit(s->grouped != NULL, s->work.low);
    be->stashes = cuda_stashes(s->grouped != NULL, be->grid->ep_size);
    if (s->grouped) {
        cuda_fill_grouped(be);
        return;
    }
    be->experts_up = experts_up;
    be->experts_down = experts_down;
    be->experts_down_backward = experts_down_backward;
    be->experts_up_backward = experts_up_backward;
}

const char *cuda_experts_name(const struct backend *be) {
    return cuda_state(be)->grouped ? "grouped" : "cublaslt";
}

void cuda_experts_close(struct backend *be) {
    grouped_close(cuda_state(be)->grouped);
}
