/* Rotary position embedding (Su et al. 2021), half-split pairs (j, j + K/2) as Hugging Face lays
 * them out. */
#ifndef REGULON_KERNELS_ROPE_H
#define REGULON_KERNELS_ROPE_H
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif
/* Rotates the first `heads` heads of K in each row of qkv[N, stride] in place by the angles of
 * positions[N]: table[., K] holds for each position K/2 cosines, then K/2 sines (FP32). inverse 1:
 * back. K a multiple of 8, at most 1024; stride a multiple of 8. */
void rope_rotate(enum real t, void *qkv, const int32_t *positions, const float *table, int heads,
                 int K, int stride, int N, int inverse, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
