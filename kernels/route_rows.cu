/* The rows of an expert lie together, in the order of their tokens: a stable sort of the (token,
 * choice) pairs by expert. */
#include "route_rows.h"
#include "sort.cuh"

struct by_expert {
    int32_t *row_of;
    float *row_p;
    const int32_t *ids;
    const float *p;

    __device__ int key(int i) const { return ids[i]; }

    __device__ void place(int i, int row) const {
        row_of[i] = row;
        row_p[row] = p[i];
    }
};

/* A warp an expert. */
static __global__ void __launch_bounds__(32)
    pad(float *row_p, const int32_t *offsets, const int32_t *ends) {
    for (int r = ends[blockIdx.x] + threadIdx.x; r < offsets[blockIdx.x + 1]; r += 32) row_p[r] = 0;
}

extern "C" void route_rows(int32_t *offsets, int32_t *ends, int32_t *row_of, float *row_p,
                           const int32_t *ids, const float *p, void *scratch, int N, int E, int A,
                           int unit, cudaStream_t stream) {
    if (N == 0) {
        size_t bytes = sizeof *offsets * static_cast<size_t>(E);
        check(cudaMemsetAsync(offsets, 0, bytes + sizeof *offsets, stream));
        check(cudaMemsetAsync(ends, 0, bytes, stream));
        return;
    }
    assert(E >= 1 && E <= SORT_KEYS && unit >= 1 && N < (1 << 30) / A);
    sort(by_expert{row_of, row_p, ids, p}, sort_places{offsets, ends, static_cast<uint32_t>(unit)},
         scratch, N * A, E, stream);
    if (unit == 1) return;
    pad<<<E, 32, 0, stream>>>(row_p, offsets, ends);
    check(cudaGetLastError());
}
