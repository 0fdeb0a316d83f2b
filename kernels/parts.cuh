/* Sums of rows that several blocks have a part of, in one order. */
#ifndef REGULON_KERNELS_PARTS_CUH
#define REGULON_KERNELS_PARTS_CUH
#include "grouped_gemm.h"
#include "vector.cuh"

/* sums[r] = sum of parts[n, rows] over n at r, for rows r < offsets[E] */
static __global__ void __launch_bounds__(128)
    sum_parts_kernel(float *sums, const float *parts, const int32_t *offsets, int E, int rows,
                     int n) {
    int r = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (r >= offsets[E]) return;
    float sum = 0;
    for (int i = 0; i < n; i++) sum += parts[static_cast<size_t>(i) * rows + r];
    sums[r] = sum;
}

static inline void sum_parts(float *sums, const float *parts, const struct grouped_rows &r, int n,
                             cudaStream_t stream) {
    sum_parts_kernel<<<ceil_div(r.rows, 128), 128, 0, stream>>>(sums, parts, r.offsets, r.E, r.rows,
                                                                n);
    check(cudaGetLastError());
}
#endif
