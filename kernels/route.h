/* The router: from logits to experts, and back. */
#ifndef REGULON_KERNELS_ROUTE_H
#define REGULON_KERNELS_ROUTE_H
#include "real.h"
#include "scratch.h"
#ifdef __cplusplus
extern "C" {
#endif
/* For each of N tokens, logits[N, E] (FP32): probs[N, E] = softmax; lse[N]; ids[N, A] the A largest
 * of probs + bias (bias[E] or NULL; ties: lowest id; NaN everywhere still gives A different
 * experts), ascending; p[N, A] their probs divided by their sum. Over the tokens: counts[E], P[E] =
 * sum of probs, entropy[1] = sum of lse - sum_e probs logits, z[1] = sum of lse^2 (FP64), in a
 * fixed order. E from 1 to 256, A from 1 to E. scratch: route_scratch(E) bytes. N may be 0.
 */
void route_forward(float *probs, float *lse, int32_t *ids, float *p, uint32_t *counts, double *P,
                   double *entropy, double *z, const float *logits, const float *bias,
                   void *scratch, int N, int E, int A, cudaStream_t stream);

/* The same with the ids given (ascending), for tests that force the experts. */
void route_forced(float *probs, float *lse, const int32_t *ids, float *p, uint32_t *counts,
                  double *P, double *entropy, double *z, const float *logits, void *scratch, int N,
                  int E, int A, cudaStream_t stream);

/* dlogits[N, E] in the type: with S the sum of the chosen probs, ds_a = (dp_a - sum_b dp_b p_b) / S
 * for the chosen, plus balance[E] for all; dlogits = probs (ds - sum_e ds_e probs_e + 2 dz[0] lse).
 * dp[N, A]. balance and dz as balance_losses leaves them. */
void route_backward(enum real t, void *dlogits, const float *dp, const float *probs,
                    const float *lse, const int32_t *ids, const float *p, const float *balance,
                    const float *dz, int N, int E, int A, cudaStream_t stream);

/* Enough for route_rows as well. */
#ifdef __cplusplus
}
#endif
#endif
