/* Embedding, RMSNorm, RoPE, products: the kernels' host functions behind the table. */
#include "config.h"
#include "backend/cuda.h"
#include "embed.h"
#include "norm.h"
#include "rope.h"
#include <assert.h>

static void embed(struct backend *be, real_t *x, const real_t *table, const int32_t *tokens, int N,
                  int D) {
    struct cuda_state *s = cuda_state(be);
    embed_forward(s->real, x, table, tokens, N, D, s->stream);
}

static void embed_gradient(struct backend *be, float *dtable, const real_t *dx,
                           const int32_t *tokens, int N, int D, int V) {
    struct cuda_state *s = cuda_state(be);
    embed_backward(s->real, dtable, dx, tokens, s->scratch, N, D, V, s->stream);
}

static void add_norm(struct backend *be, real_t *sum, real_t *y, float *rstd, const real_t *x,
                     const real_t *delta, const real_t *w, float eps, int N, int D) {
    struct cuda_state *s = cuda_state(be);
    norm_forward(s->real, sum, y, rstd, x, delta, w, eps, N, D, s->stream);
}

static void norm_gradient(struct backend *be, real_t *dx, float *dw, const real_t *dy,
                          const real_t *x, const float *rstd, const real_t *w, int N, int D) {
    struct cuda_state *s = cuda_state(be);
    norm_backward(s->real, dx, dw, dy, x, rstd, w, s->scratch, N, D, s->stream);
}

static void rope(struct backend *be, real_t *qkv, const int32_t *positions,
                 struct attention_shape a, double theta, int N, int inverse) {
    struct cuda_state *s = cuda_state(be);
    (void)theta; /* the table was made for it */
    rope_rotate(s->real, qkv, positions, s->rope, a.H + a.G, a.K, (a.H + 2 * a.G) * a.K, N, inverse,
                s->stream);
}

static void matmul(struct backend *be, real_t *y, const real_t *x, const real_t *w, int N, int M,
                   int D) {
    if (be->low != LOW_NONE)
        cuda_state(be)->eight->matmul(be, y, x, w, N, M, D);
    else
        cuda_gemm(be, 0, CUDA_NO_TRANSPOSE, CUDA_TRANSPOSE, N, M, D, x, w, 0, y, /*c_fp32=*/0);
}

static void matmul_dx(struct backend *be, real_t *dx, const real_t *dy, const real_t *w, int N,
                      int M, int D, int accumulate) {
    assert(be->low == LOW_NONE || !accumulate); /* nobody adds to it in eight bits */
    if (be->low != LOW_NONE)
        cuda_state(be)->eight->matmul_dx(be, dx, dy, w, N, M, D);
    else
        cuda_gemm(be, 0, CUDA_NO_TRANSPOSE, CUDA_NO_TRANSPOSE, N, D, M, dy, w, accumulate ? 1 : 0,
                  dx,
                  /*c_fp32=*/0);
}

static void matmul_dw(struct backend *be, float *dw, const real_t *dy, const real_t *x, int N,
                      int M, int D, int accumulate) {
    if (be->low != LOW_NONE)
        cuda_state(be)->eight->matmul_dw(be, dw, dy, x, N, M, D, accumulate);
    else
        cuda_gemm(be, 0, CUDA_TRANSPOSE, CUDA_NO_TRANSPOSE, M, D, N, dy, x, accumulate ? 1 : 0, dw,
                  /*c_fp32=*/1);
}

void cuda_fill_dense(struct backend *be) {
    be->embed = embed;
    be->embed_backward = embed_gradient;
    be->add_norm = add_norm;
    be->norm_backward = norm_gradient;
    be->rope = rope;
    be->matmul = matmul;
    be->matmul_dx = matmul_dx;
    be->matmul_dw = matmul_dw;
}
