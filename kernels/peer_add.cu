/* A block walks over its tiles; a thread has several loads on their way, since one multiprocessor
 * has the latency of memory to hide with them alone. Nothing is read twice: what comes and goes
 * leaves the cache to the products. */
#include "peer_add.h"
#include "vector.cuh"

enum { THREADS = 512, RUNS = 6, TOGETHER = 3 };

static __device__ __forceinline__ void add_to(float &a, float b) {
    a += b;
}

static __device__ __forceinline__ void add_to(float4 &a, float4 b) {
    a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
}

/* T: what a thread takes at a time; n of them. The arrays are read TOGETHER at a time, RUNS from
 * each: with two ranks all three of them. */
template <class T>
static __global__ void __launch_bounds__(THREADS, 1)
    add_parts(T *sum, peer_parts parts, size_t n, bool accumulate) {
    const size_t tile = static_cast<size_t>(THREADS) * RUNS;
    const int arrays = parts.n_ranks + accumulate;
    for (size_t first = blockIdx.x * tile; first < n; first += gridDim.x * tile) {
        T total[RUNS], part[TOGETHER][RUNS];
        const size_t at = first + threadIdx.x;
        for (int r = 0; r < arrays; r += TOGETHER) {
#pragma unroll
            for (int k = 0; k < TOGETHER; k++) {
                if (r + k >= arrays) break;
                const T *from = sum;
                if (r + k < parts.n_ranks) from = reinterpret_cast<const T *>(parts.at[r + k]);
#pragma unroll
                for (int u = 0; u < RUNS; u++)
                    if (at + u * THREADS < n) part[k][u] = __ldcs(from + at + u * THREADS);
            }
#pragma unroll
            for (int k = 0; k < TOGETHER; k++) {
                if (r + k >= arrays) break;
#pragma unroll
                for (int u = 0; u < RUNS; u++) {
                    if (r + k == 0)
                        total[u] = part[k][u];
                    else
                        add_to(total[u], part[k][u]);
                }
            }
        }
#pragma unroll
        for (int u = 0; u < RUNS; u++)
            if (at + u * THREADS < n) __stcs(sum + at + u * THREADS, total[u]);
    }
}

extern "C" void peer_add(float *sum, struct peer_parts parts, size_t n, int accumulate, int blocks,
                         cudaStream_t stream) {
    assert(parts.n_ranks >= 1 && parts.n_ranks <= PEERS && blocks >= 1);
    bool wide = aligned16(sum) && n % 4 == 0;
    for (int r = 0; r < parts.n_ranks; r++) wide &= aligned16(parts.at[r]);
    if (n == 0) return;
    if (wide)
        add_parts<<<blocks, THREADS, 0, stream>>>(reinterpret_cast<float4 *>(sum), parts, n / 4,
                                                  accumulate != 0);
    else
        add_parts<<<blocks, THREADS, 0, stream>>>(sum, parts, n, accumulate != 0);
    check(cudaGetLastError());
}
