/* Eight columns of a row at a time; a thread reads all it needs of them before it writes, so that
 * the results may take the place of the operands. */
#include "swiglu.h"
#include "swiglu.cuh"
#include "vector.cuh"

enum { THREADS = 256, UNROLL = 2 };

/* The R * F / 8 groups are shared out regardless of rows, so that all lanes have work at any F. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    forward(T *h, const T *z, const float *p, unsigned n_groups, const int32_t *last,
            unsigned groups_a_row) {
    vec<T, 8> gate[UNROLL], up[UNROLL];
    float factor[UNROLL];
    const unsigned first = blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    const size_t F = static_cast<size_t>(groups_a_row) * 8;
    if (last) n_groups = static_cast<unsigned>(*last) * groups_a_row;
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        unsigned group = first + u * THREADS, row = group / groups_a_row;
        if (group >= n_groups) continue;
        const T *at = z + row * 2 * F + (group - row * groups_a_row) * 8;
        gate[u] = load<8>(at);
        up[u] = load<8>(at + F);
        factor[u] = p[row];
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        unsigned group = first + u * THREADS;
        if (group >= n_groups) continue;
        float g[8], a[8];
        unpack(g, gate[u]);
        unpack(a, up[u]);
        for (int k = 0; k < 8; k++) a[k] = swiglu(g[k], a[k], factor[u]);
        store(h + static_cast<size_t>(group) * 8, pack<T>(a));
    }
}

void swiglu_forward(enum real t, void *h, const void *z, const float *p, int R, const int32_t *last,
                    int F, cudaStream_t stream) {
    size_t n_groups = static_cast<size_t>(R) * F / 8;
    assert(F > 0 && F % 8 == 0 && n_groups < 1u << 31 && aligned16(h) && aligned16(z));
    if (R == 0) return;
    unsigned blocks = static_cast<unsigned>(ceil_div(n_groups, THREADS * UNROLL));
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        forward<<<blocks, THREADS, 0, stream>>>(static_cast<T *>(h), static_cast<const T *>(z), p,
                                                static_cast<unsigned>(n_groups), last,
                                                static_cast<unsigned>(F / 8));
    });
    check(cudaGetLastError());
}

/* A block a row. Pointers may be equal (dz and z, h and dh). */
template <class T, int WIDTH>
static __global__ void __launch_bounds__(WIDTH)
    backward(T *dz, float *dp, T *h, const T *dh, const T *z, const float *p, const int32_t *last,
             int F) {
    if (last && blockIdx.x >= static_cast<unsigned>(*last)) return;
    size_t row = static_cast<size_t>(blockIdx.x) * F;
    dz += 2 * row, z += 2 * row, dh += row, h += row;
    float factor = p[blockIdx.x], dot = 0;
    for (int j = threadIdx.x * 8; j < F; j += WIDTH * 8) {
        float g[8], u[8], d[8];
        vec<T, 8> gate = load<8>(z + j), up = load<8>(z + F + j), down = load<8>(dh + j);
        unpack(g, gate);
        unpack(u, up);
        unpack(d, down);
        float dgate[8], dup[8], out[8];
        for (int k = 0; k < 8; k++) {
            swiglu_gradient b = swiglu_back(g[k], u[k], factor, d[k]);
            dot += b.dp, dgate[k] = b.dgate, dup[k] = b.dup, out[k] = b.h;
        }
        store(dz + j, pack<T>(dgate));
        store(dz + F + j, pack<T>(dup));
        store(h + j, pack<T>(out));
    }
    dot = block_sum<WIDTH>(dot);
    if (threadIdx.x == 0) dp[blockIdx.x] = dot;
}

void swiglu_backward(enum real t, void *dz, float *dp, void *h, const void *dh, const void *z,
                     const float *p, int R, const int32_t *last, int F, cudaStream_t stream) {
    assert(F > 0 && F % 8 == 0);
    assert(aligned16(dz) && aligned16(h) && aligned16(dh) && aligned16(z));
    if (R == 0) return;
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        auto kernel = F <= 512 ? backward<T, 64> : F <= 1024 ? backward<T, 128> : backward<T, 256>;
        int threads = F <= 512 ? 64 : F <= 1024 ? 128 : 256;
        kernel<<<R, threads, 0, stream>>>(static_cast<T *>(dz), dp, static_cast<T *>(h),
                                          static_cast<const T *>(dh), static_cast<const T *>(z), p,
                                          last, F);
    });
    check(cudaGetLastError());
}
