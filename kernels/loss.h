/* Cross-entropy of a chunk of tokens whose logits are in memory. */
#ifndef REGULON_KERNELS_LOSS_H
#define REGULON_KERNELS_LOSS_H
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif
/* logits[n, V] (FP32): losses[n] (FP64) = weights[i] (lse - logits[target]), 0 where target is
 * negative; dlogits[n, V] in the type = scale[0] weights[i] (softmax - 1 at target), zeros where
 * target is negative; dlogits NULL: the losses alone. V any. */
void loss_forward_backward(enum real t, void *dlogits, double *losses, const float *logits,
                           const int32_t *targets, const float *weights, const float *scale, int n,
                           int V, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
