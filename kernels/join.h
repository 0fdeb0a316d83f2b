/* Queries, keys and values of tokens: together, and apart. */
#ifndef REGULON_KERNELS_JOIN_H
#define REGULON_KERNELS_JOIN_H
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif
/* qkv[N, (H + 2G) K] = for each token q[N, H K], k[N, G K], v[N, G K]; K a multiple of 8; pointers
 * aligned to 16 bytes. */
void join_heads(enum real t, void *qkv, const void *q, const void *k, const void *v, int N, int H,
                int G, int K, cudaStream_t stream);
/* q, k and v from qkv */
void split_heads(enum real t, void *q, void *k, void *v, const void *qkv, int N, int H, int G,
                 int K, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
