/* The experts' activation with the routing probability: h = p * silu(gate) * up (Shazeer 2020). */
#ifndef REGULON_KERNELS_SWIGLU_H
#define REGULON_KERNELS_SWIGLU_H
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif
/* h[R, F] from z[R, 2F] (gate first), p[R]; F a multiple of 8, R F below 2^34. Here and below:
 * last NULL, or on the device: of the R rows only the first *last are read and written. */
void swiglu_forward(enum real t, void *h, const void *z, const float *p, int R, const int32_t *last,
                    int F, cudaStream_t stream);

/* From dh[R, F]: with s = sigmoid(g), a = g s u: dp[R] = sum_j dh a; dgate = p dh u s (1 + g (1 -
 * s)), dup = p dh g s. dz[R, 2F] may be z. h[R, F] = p a, made again for the weight
 * gradient, may be dh. */
void swiglu_backward(enum real t, void *dz, float *dp, void *h, const void *dh, const void *z,
                     const float *p, int R, const int32_t *last, int F, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
