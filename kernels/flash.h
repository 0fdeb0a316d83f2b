/* Attention of our own (after FlashAttention, Dao et al. 2022), for devices and builds without
 * cuDNN, for sliding windows and for bit-for-bit runs. */
#ifndef REGULON_KERNELS_FLASH_H
#define REGULON_KERNELS_FLASH_H
#include "real.h"
#include "scratch.h"
#ifdef __cplusplus
extern "C" {
#endif
/* H query heads, G key and value heads (H a multiple of G), K wide (a multiple of 8, at most 256);
 * window: tokens that a query sees, itself included, 0: all. Matrices and scratch start at
 * multiples of 16 bytes. */
struct flash_sizes {
    int H, G, K, window;
};

/* out[N, H K] = causal attention within each document, scale 1/sqrt(K), of qkv[N, (H + 2G) K] (a
 * token's queries, keys, values); lse[N, H] (FP32, natural) is kept for the backward pass.
 * begin[N]: the first token of each token's document (device). end[N]: one past its last. Tokens
 * that lie in no document: begin and end are their own place, i and i + 1. */
void flash_forward(enum real t, void *out, float *lse, const void *qkv, const int32_t *begin,
                   const int32_t *end, int N, struct flash_sizes s, cudaStream_t stream);

/* dqkv[N, (H + 2G) K], overwritten. Deterministic: every element is summed by one block in a fixed
 * order. scratch: flash_scratch(N, H) bytes. */
void flash_backward(enum real t, void *dqkv, const void *dout, const void *out, const float *lse,
                    const void *qkv, const int32_t *begin, const int32_t *end, void *scratch, int N,
                    struct flash_sizes s, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
