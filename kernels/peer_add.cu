/* A block walks over its tiles; a thread has several loads on their way, since one multiprocessor
 * has the latency of memory to hide with them alone. Nothing is read twice: what comes and goes
 * leaves the cache to the products. */
#include "peer_add.h"
#include "vector.cuh"

enum { THREADS = 512, LOADS = 18 /* of a thread at a time */ };

static __device__ __forceinline__ void add_to(float &a, float b) {
    a += b;
}

static __device__ __forceinline__ void add_to(float4 &a, float4 b) {
    a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
}

/* T: what a thread takes at a time; n of them. The arrays, two or (TOGETHER 3) any number, are read
 * TOGETHER at a time, RUNS from each. */
template <int TOGETHER, class T>
static __global__ void __launch_bounds__(THREADS, 1)
    add_parts(T *sum, peer_parts parts, size_t n, int accumulate) {
    constexpr int RUNS = LOADS / TOGETHER;
    const size_t tile = static_cast<size_t>(THREADS) * RUNS;
    const int arrays = TOGETHER == 2 ? 2 : parts.n + accumulate;
    for (size_t first = blockIdx.x * tile; first < n; first += gridDim.x * tile) {
        T total[RUNS], part[TOGETHER][RUNS];
        const size_t at = first + threadIdx.x;
        for (int r = 0; r < arrays; r += TOGETHER) {
#pragma unroll
            for (int k = 0; k < TOGETHER; k++) {
                if (r + k >= arrays) break;
                const T *from = sum;
                if (r + k < parts.n) from = reinterpret_cast<const T *>(parts.at[r + k]);
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

template <class T>
static void start(T *sum, const peer_parts &parts, size_t n, int accumulate, int blocks,
                  cudaStream_t stream) {
    if (parts.n + accumulate == 2)
        add_parts<2><<<blocks, THREADS, 0, stream>>>(sum, parts, n, accumulate);
    else
        add_parts<3><<<blocks, THREADS, 0, stream>>>(sum, parts, n, accumulate);
    check(cudaGetLastError());
}

extern "C" void peer_add(float *sum, struct peer_parts parts, size_t n, int accumulate, int blocks,
                         cudaStream_t stream) {
    assert(parts.n + accumulate >= 1 && parts.n <= PEERS && blocks >= 1);
    bool wide = aligned16(sum) && n % 4 == 0;
    for (int r = 0; r < parts.n; r++) wide &= aligned16(parts.at[r]);
    if (n == 0 || parts.n == 0) return;
    if (wide)
        start(reinterpret_cast<float4 *>(sum), parts, n / 4, accumulate, blocks, stream);
    else
        start(sum, parts, n, accumulate, blocks, stream);
}
