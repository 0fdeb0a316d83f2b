/* Copies of rows. */
#include "permute.h"
#include "vector.cuh"

enum { THREADS = 128, BATCH = 4, PAD_BLOCKS = 8 };

/* The first PAD_BLOCKS * E blocks see to the rows that pad the experts', each to a share of one
 * expert's, the others to a token each: x is read once, whatever A. Floor at N 8192, D 4096, A 2
 * and 4.3 TB/s: 47 us. */
static __global__ void __launch_bounds__(THREADS)
    spread(uint4 *rows, const int32_t *base, const uint4 *x, const int32_t *row_of,
           const int32_t *offsets, const int32_t *ends, int E, int A, int n) {
    if (base) rows += static_cast<size_t>(*base) * n;
    const int pads = PAD_BLOCKS * E, block = static_cast<int>(blockIdx.x);
    if (block < pads) {
        int e = block / PAD_BLOCKS;
        for (int r = ends[e] + block % PAD_BLOCKS; r < offsets[e + 1]; r += PAD_BLOCKS)
            for (int j = threadIdx.x; j < n; j += THREADS)
                rows[static_cast<size_t>(r) * n + j] = make_uint4(0, 0, 0, 0);
        return;
    }
    const size_t token = static_cast<size_t>(block - pads);
    x += token * n, row_of += token * A;
    for (int first = threadIdx.x; first < n; first += THREADS * BATCH) {
        uint4 v[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            if (first + b * THREADS < n) v[b] = x[first + b * THREADS];
        for (int a = 0; a < A; a++) {
            int r = row_of[a];
            if (r < 0) continue;
            uint4 *row = rows + static_cast<size_t>(r) * n + first;
#pragma unroll
            for (int b = 0; b < BATCH; b++)
                if (first + b * THREADS < n) row[b * THREADS] = v[b];
        }
    }
}

void permute_spread(enum real t, void *rows, const int32_t *base, const void *x,
                    const int32_t *row_of, const int32_t *offsets, const int32_t *ends, int N,
                    int E, int A, int D, cudaStream_t stream) {
    assert(D % 8 == 0 && aligned16(rows) && aligned16(x));
    int n = static_cast<int>(D * real_bytes(t) / sizeof(uint4));
    if (E == 0 && N == 0) return;
    spread<<<PAD_BLOCKS * E + N, THREADS, 0, stream>>>(static_cast<uint4 *>(rows), base,
                                                       static_cast<const uint4 *>(x), row_of,
                                                       offsets, ends, E, A, n);
    check(cudaGetLastError());
}

/* A block a token. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    gather(T *out, const T *rows, const int32_t *row_of, int A, int D) {
    out += static_cast<size_t>(blockIdx.x) * D;
    row_of += static_cast<size_t>(blockIdx.x) * A;
    for (int j = threadIdx.x * 8; j < D; j += THREADS * 8) {
        float sum[8] = {};
        for (int first = 0; first < A; first += BATCH) {
            vec<T, 8> v[BATCH];
            bool there[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                int r = first + b < A ? row_of[first + b] : -1;
                there[b] = r >= 0;
                if (there[b]) v[b] = load<8>(rows + static_cast<size_t>(r) * D + j);
            }
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                if (!there[b]) continue;
                float f[8];
                unpack(f, v[b]);
                for (int k = 0; k < 8; k++) sum[k] += f[k];
            }
        }
        store(out + j, pack<T>(sum));
    }
}

void permute_gather(enum real t, void *out, const void *rows, const int32_t *row_of, int N, int A,
                    int D, cudaStream_t stream) {
    assert(D % 8 == 0 && aligned16(out) && aligned16(rows));
    if (N == 0) return;
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        gather<<<N, THREADS, 0, stream>>>(static_cast<T *>(out), static_cast<const T *>(rows),
                                          row_of, A, D);
    });
    check(cudaGetLastError());
}

static __global__ void __launch_bounds__(THREADS)
    gather_values(float *out, const float *values, const int32_t *row_of, size_t n) {
    size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= n) return;
    int r = row_of[i];
    out[i] = r < 0 ? 0 : values[r];
}

void permute_gather_values(float *out, const float *values, const int32_t *row_of, int N, int A,
                           cudaStream_t stream) {
    size_t n = static_cast<size_t>(N) * A;
    if (n == 0) return;
    unsigned blocks = static_cast<unsigned>(ceil_div(n, THREADS));
    gather_values<<<blocks, THREADS, 0, stream>>>(out, values, row_of, n);
    check(cudaGetLastError());
}
