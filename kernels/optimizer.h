/* AdamW, and the sums that decide on a step. */
#ifndef REGULON_KERNELS_OPTIMIZER_H
#define REGULON_KERNELS_OPTIMIZER_H
#include "real.h"
#include "scratch.h"
#ifdef __cplusplus
extern "C" {
#endif
/* sum[0] += x[0] + ... + x[n - 1], and += x[i]^2; FP64, fixed order. scratch has sum_scratch()
 * bytes. */
void sum_doubles(double *sum, const double *x, size_t n, void *scratch, cudaStream_t stream);
void sum_squares(double *sum, const float *x, size_t n, void *scratch, cudaStream_t stream);

/* factor[0] = min(1, max_norm / (sqrt(norm2) + 1e-6)), 1 when max_norm is 0; -1 when one of
 * values[n_values] or norm2 is not finite: the step is not applied. norm2 is in backend memory,
 * like values. */
void clip_decide(float *factor, const double *values, int n_values, const double *norm2,
                 double max_norm, cudaStream_t stream);

/* One AdamW update (Loshchilov and Hutter 2019, algorithm 2) with g = factor[0] * grad, nothing
 * when factor[0] < 0:
 *
 *     m = beta1 m + (1 - beta1) g
 *     v = beta2 v + (1 - beta2) g^2
 *     w = w (1 - lr decay) - lr (m / correction1) / (sqrt(v / correction2) + eps)
 *
 * on FP32 masters w; weight in the type gets them rounded to nearest even, unless it is
 * NULL. With FP32 weight and master may be one. */
struct adamw_rule {
    float lr, beta1, beta2, eps, decay, correction1, correction2;
};
void adamw_update(enum real t, float *master, void *weight, float *m, float *v, const float *grad,
                  const float *factor, size_t n, struct adamw_rule rule, cudaStream_t stream);

/* sum[n] += x[n] */
void add_floats(float *sum, const float *x, size_t n, cudaStream_t stream);

/* dst[n] in the type = src[n] */
void real_from_float(enum real t, void *dst, const float *src, size_t n, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
