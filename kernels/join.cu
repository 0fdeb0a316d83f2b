#include "check.h"
#include "join.h"
#include <cassert>

enum { THREADS = 128, ROWS = 8 };

// Widths in units of 16 bytes. A thread copies one column of ROWS rows between the whole and the
// part that has it, all its loads in flight at once.
template <bool JOIN>
static __global__ void __launch_bounds__(THREADS)
    copy_heads(uint4 *whole, uint4 *q, uint4 *k, uint4 *v, int N, int q_width, int k_width) {
    int width = q_width + 2 * k_width, column = (int)blockIdx.y * THREADS + (int)threadIdx.x;
    if (column >= width) return;
    uint4 *part = q + column;
    int stride = q_width;
    if (column >= q_width) {
        int c = column - q_width;
        part = c < k_width ? k + c : v + (c - k_width);
        stride = k_width;
    }
    int row = (int)blockIdx.x * ROWS, n = N - row, from_stride = JOIN ? stride : width,
        to_stride = JOIN ? width : stride;
    part += (size_t)row * stride;
    whole += (size_t)row * width + column;
    const uint4 *from = JOIN ? part : whole;
    uint4 *to = JOIN ? whole : part;
    uint4 x[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (i < n) x[i] = __ldcs(from + (size_t)i * from_stride);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (i < n) to[(size_t)i * to_stride] = x[i];
}

template <bool JOIN>
static void copy(enum real t, void *whole, void *q, void *k, void *v, int N, int H, int G, int K,
                 cudaStream_t stream) {
    assert(K % 8 == 0);
    if (N == 0) return;
    int per_unit = (int)(16 / real_bytes(t)), q_width = H * K / per_unit,
        k_width = G * K / per_unit;
    dim3 grid((unsigned)((N + ROWS - 1) / ROWS),
              (unsigned)((q_width + 2 * k_width + THREADS - 1) / THREADS));
    copy_heads<JOIN><<<grid, THREADS, 0, stream>>>(static_cast<uint4 *>(whole),
                                                   static_cast<uint4 *>(q), static_cast<uint4 *>(k),
                                                   static_cast<uint4 *>(v), N, q_width, k_width);
    check(cudaGetLastError());
}

void join_heads(enum real t, void *qkv, const void *q, const void *k, const void *v, int N, int H,
                int G, int K, cudaStream_t stream) {
    copy<true>(t, qkv, const_cast<void *>(q), const_cast<void *>(k), const_cast<void *>(v), N, H, G,
               K, stream);
}

void split_heads(enum real t, void *q, void *k, void *v, const void *qkv, int N, int H, int G,
                 int K, cudaStream_t stream) {
    copy<false>(t, const_cast<void *>(qkv), q, k, v, N, H, G, K, stream);
}
