/* RMSNorm (Zhang and Sennrich 2019, eq. 4), fused with the residual addition. */
#ifndef REGULON_KERNELS_NORM_H
#define REGULON_KERNELS_NORM_H
#include "real.h"
#include "scratch.h"
#ifdef __cplusplus
extern "C" {
#endif
/* sum = x + delta (delta NULL: sum = x; sum may be x), rounded to the type; rstd[N] = 1 /
 * sqrt(mean(sum^2) + eps) of the rounded sum; y = w * sum * rstd. x, delta, sum, y [N, D]; w [D]; D
 * a multiple of 8, at most 16384, here and below. */
void norm_forward(enum real t, void *sum, void *y, float *rstd, const void *x, const void *delta,
                  const void *w, float eps, int N, int D, cudaStream_t stream);

/* dx[N, D] += the gradient through the norm of dy, dw[D] (FP32) += that of its weight; x is `sum`
 * of the forward pass. With u = x rstd: dx += rstd (w dy - u mean(w dy u)); dw += sum over tokens
 * of dy u, in a fixed order. scratch: norm_scratch(D) bytes. */
void norm_backward(enum real t, void *dx, float *dw, const void *dy, const void *x,
                   const float *rstd, const void *w, void *scratch, int N, int D,
                   cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
