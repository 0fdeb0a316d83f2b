/* The head: logits in FP32 and cross-entropy for a chunk of tokens at a time, with their
 * gradients. */
#include "config.h"
#include "backend/cuda.h"
#include "loss.h"
#include "optimizer.h"

static void head(struct backend *be, real_t *dx, float *dw, double *loss, double *each,
                 const real_t *x, const real_t *w, const int32_t *targets, const float *weights,
                 const float *scale, int N, int V, int D, int accumulate) {
    struct cuda_state *s = cuda_state(be);
    if (dx && N == 0 && !accumulate) be->zero(be, dw, (size_t)V * (size_t)D * sizeof *dw);
    for (int first = 0; first < N; first += s->chunk) {
        int n = first + s->chunk < N ? s->chunk : N - first, adds = accumulate || first > 0;
        const real_t *part = real_at(be, x, (size_t)first * (size_t)D);
        cuda_gemm(be, 0, CUDA_NO_TRANSPOSE, CUDA_TRANSPOSE, n, V, D, part, w, 0, s->logits,
                  /*c_fp32=*/1);
        loss_forward_backward(s->real, dx ? s->dlogits : NULL, s->losses + first, s->logits,
                              targets + first, weights + first, scale, n, V, s->stream);
        if (!dx) continue;
        be->matmul_dx(be, real_at(be, dx, (size_t)first * (size_t)D), s->dlogits, w, n, V, D,
                      /*accumulate=*/0);
        be->matmul_dw(be, dw, s->dlogits, part, n, V, D, adds);
    }
    if (each) be->copy(be, each, s->losses, (size_t)N * sizeof *each);
    sum_doubles(loss, s->losses, (size_t)N, s->scratch, s->stream);
}

void cuda_fill_head(struct backend *be) {
    be->head = head;
}
