/* FP64 sums over warps and blocks, always in the same order. */
#ifndef REGULON_KERNELS_SUM_CUH
#define REGULON_KERNELS_SUM_CUH
#include <cuda_runtime.h>

/* All lanes get the sum of the warp, the same bits in each. */
static __device__ __forceinline__ double warp_sum(double x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}

/* Thread 0 of a one-dimensional block of THREADS, a multiple of 32, gets the sum. */
template <int THREADS> static __device__ __forceinline__ double block_sum(double x) {
    const int WARPS = THREADS / 32;
    __shared__ double of_warp[WARPS];
    x = warp_sum(x);
    __syncthreads(); /* of_warp may still be read from the call before */
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    return threadIdx.x < 32 ? warp_sum(threadIdx.x < WARPS ? of_warp[threadIdx.x] : 0.0) : 0.0;
}
#endif
