/* The experts by one product each, on several streams: works on any GPU, and is what the grouped
 * kernels (cuda_grouped.c) are compared with. The host knows the counts. */
#include "config.h"
#include "backend/cuda.h"
#include "swiglu.h"
#include <assert.h>

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
                          const real_t *a, const real_t *b, struct gradient dw) {
    assert(!dw.own);
    cuda_fork(be);
    for (int e = 0; e < r->n_local; e++) {
        size_t first = (size_t)r->host_offsets[e];
        cuda_gemm(be, 1 + e % CUDA_SIDES, CUDA_TRANSPOSE, CUDA_NO_TRANSPOSE, M, N,
                  r->host_offsets[e + 1] - r->host_offsets[e], real_at(be, a, first * (size_t)M),
                  real_at(be, b, first * (size_t)N), dw.add,
                  dw.whole + (size_t)e * (size_t)M * (size_t)N, /*c_fp32=*/1);
    }
    cuda_join(be);
}

static int n_rows(const struct cuda_rows *r) {
    return r->host_offsets[r->n_local];
}

static void up(struct backend *be, const struct cuda_rows *r, real_t *z, real_t *h, const real_t *x,
               const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    each_rows(be, r, CUDA_TRANSPOSE, 2 * r->shape.F, r->shape.D, x, w, z);
    swiglu_forward(s->real, h, z, r->row_p, n_rows(r), NULL, r->shape.F, s->stream);
}

static void down(struct backend *be, const struct cuda_rows *r, real_t *y, const real_t *h,
                 const real_t *w) {
    each_rows(be, r, CUDA_TRANSPOSE, r->shape.D, r->shape.F, h, w, y);
}

static void down_gradient(struct backend *be, const struct cuda_rows *r, real_t *dz, real_t *h,
                          float *dp_rows, const real_t *dy, const real_t *z, const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    each_rows(be, r, CUDA_NO_TRANSPOSE, r->shape.F, r->shape.D, dy, w, h); /* h holds dh */
    swiglu_backward(s->real, dz, dp_rows, h, h, z, r->row_p, n_rows(r), NULL, r->shape.F,
                    s->stream);
}

static void up_gradient(struct backend *be, const struct cuda_rows *r, real_t *dx, const real_t *dz,
                        const real_t *w) {
    each_rows(be, r, CUDA_NO_TRANSPOSE, r->shape.D, 2 * r->shape.F, dz, w, dx);
}

static void down_weights(struct backend *be, const struct cuda_rows *r, struct gradient dw,
                         const real_t *dy, const real_t *h) {
    each_gradient(be, r, r->shape.D, r->shape.F, dy, h, dw);
}

static void up_weights(struct backend *be, const struct cuda_rows *r, struct gradient dw,
                       const real_t *dz, const real_t *x) {
    each_gradient(be, r, 2 * r->shape.F, r->shape.D, dz, x, dw);
}

const struct cuda_products cuda_each = {.up = up,
                                        .down = down,
                                        .down_gradient = down_gradient,
                                        .up_gradient = up_gradient,
                                        .down_weights = down_weights,
                                        .up_weights = up_weights};
