/* Sums of arrays that came from other ranks, with few blocks: it runs beside products. */
#ifndef REGULON_KERNELS_PEER_ADD_H
#define REGULON_KERNELS_PEER_ADD_H
#include "scratch.h"
#include <cuda_runtime.h>
#ifdef __cplusplus
extern "C" {
#endif
/* Arrays of as many numbers each, at[0] .. at[n - 1]: what ranks have of a sum. */
struct peer_parts {
    const float *at[PEERS];
    int n;
};

/* sum[n] += parts[0] + parts[1] + ..., the parts first, in this order, none at all where there are
 * none; with accumulate 0 sum becomes that, and may be one of them. Fast where all begin at
 * multiples of 16 bytes and n is a multiple of 4. A block takes a multiprocessor. */
void peer_add(float *sum, struct peer_parts parts, size_t n, int accumulate, int blocks,
              cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
