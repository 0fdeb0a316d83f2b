/* A row stays in the registers of one block between its two uses, so that every array is read or
 * written once. The gradient of the weight is summed by a fixed number of blocks over the rows each
 * walks, then over the blocks: the order does not depend on the device. */
#include "norm.h"
#include "vector.cuh"
#include <type_traits>

enum { WIDEST = 16384 };

template <class T, int THREADS, int CHUNKS>
static __global__ void __launch_bounds__(THREADS)
    forward(T *sum, T *y, float *rstd, const T *x, const T *delta, const T *w, float eps, int D) {
    size_t row = static_cast<size_t>(blockIdx.x) * D;
    vec<T, 8> kept[CHUNKS], added[CHUNKS];
    const int first = threadIdx.x * 8, step = THREADS * 8;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int j = first + c * step;
        if (j >= D) continue;
        kept[c] = load<8>(x + row + j);
        if (delta) added[c] = load<8>(delta + row + j);
    }
    float squares = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int j = first + c * step;
        if (j >= D) continue;
        float f[8], d[8];
        unpack(f, kept[c]);
        if (delta) {
            unpack(d, added[c]);
            for (int k = 0; k < 8; k++) f[k] += d[k];
            kept[c] = pack<T>(f);
            unpack(f, kept[c]); /* what the backward pass will see */
        }
        if (delta || sum != x) store(sum + row + j, kept[c]);
        for (int k = 0; k < 8; k++) squares += f[k] * f[k];
    }
    float r = 1 / sqrtf(block_sum<THREADS>(squares) / D + eps);
    if (threadIdx.x == 0) rstd[blockIdx.x] = r;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int j = first + c * step;
        if (j >= D) continue;
        float f[8], g[8];
        unpack(f, kept[c]);
        unpack(g, load<8>(w + j));
        for (int k = 0; k < 8; k++) f[k] = g[k] * (f[k] * r);
        store(y + row + j, pack<T>(f));
    }
}

/* f(threads, chunks a thread) for a row of D: many loads in flight a thread, several rows a
 * multiprocessor. */
template <class F> static void for_forward(int D, F f) {
    using std::integral_constant;
    integral_constant<int, 1> one;
    integral_constant<int, 2> two;
    integral_constant<int, 4> four;
    if (D <= 512)
        f(integral_constant<int, 64>(), one);
    else if (D <= 1024)
        f(integral_constant<int, 128>(), one);
    else if (D <= 2048)
        f(integral_constant<int, 128>(), two);
    else if (D <= 4096)
        f(integral_constant<int, 128>(), four);
    else if (D <= 8192)
        f(integral_constant<int, 256>(), four);
    else
        f(integral_constant<int, 512>(), four);
}

void norm_forward(enum real t, void *sum, void *y, float *rstd, const void *x, const void *delta,
                  const void *w, float eps, int N, int D, cudaStream_t stream) {
    assert(D > 0 && D % 8 == 0 && D <= WIDEST);
    assert(aligned16(sum) && aligned16(y) && aligned16(x) && aligned16(delta) && aligned16(w));
    if (N == 0) return;
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        for_forward(D, [&](auto threads, auto chunks) {
            forward<T, threads.value, chunks.value><<<N, threads.value, 0, stream>>>(
                static_cast<T *>(sum), static_cast<T *>(y), rstd, static_cast<const T *>(x),
                static_cast<const T *>(delta), static_cast<const T *>(w), eps, D);
        });
    });
    check(cudaGetLastError());
}

/* partial[blockIdx.x, D] = the sum of dy u over the rows of the block. Only with one chunk a thread
 * there are registers to keep the row; the widest rows are read again, from the caches. */
template <class T, int THREADS, int CHUNKS>
static __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    backward(T *dx, float *partial, const T *dy, const T *x, const float *rstd, const T *w, int N,
             int D) {
    constexpr bool KEPT = CHUNKS == 1;
    float dw[CHUNKS][8] = {};
    const int first = threadIdx.x * 8, step = THREADS * 8;
    for (int i = blockIdx.x; i < N; i += gridDim.x) {
        size_t row = static_cast<size_t>(i) * D;
        vec<T, 8> dy_here, x_here, before;
        float r = rstd[i], dot = 0;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            int j = first + c * step;
            if (j >= D) continue;
            dy_here = load<8>(dy + row + j);
            x_here = load<8>(x + row + j);
            if (KEPT) before = load<8>(dx + row + j);
            float d[8], u[8], g[8];
            unpack(d, dy_here);
            unpack(u, x_here);
            unpack(g, load<8>(w + j));
            for (int k = 0; k < 8; k++) {
                dot += g[k] * d[k] * u[k];
                dw[c][k] += d[k] * (u[k] * r);
            }
        }
        float mean = block_sum<THREADS>(dot) * r * r / D; /* of w dy u, times r */
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            int j = first + c * step;
            if (j >= D) continue;
            if (!KEPT) {
                dy_here = load<8>(dy + row + j);
                x_here = load<8>(x + row + j);
                before = load<8>(dx + row + j);
            }
            float d[8], u[8], g[8], sum[8];
            unpack(d, dy_here);
            unpack(u, x_here);
            unpack(g, load<8>(w + j));
            unpack(sum, before);
            for (int k = 0; k < 8; k++) sum[k] += r * (g[k] * d[k] - u[k] * mean);
            store(dx + row + j, pack<T>(sum));
        }
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int j = first + c * step;
        if (j < D) store(partial + static_cast<size_t>(blockIdx.x) * D + j, pack<float>(dw[c]));
    }
}

/* dw[D] += the sum of partial[n, D] over n. A block takes 32 columns, its warp k the rows k, k +
 * 32, ...; then come the warps in order. */
static __global__ void __launch_bounds__(1024)
    add_partials(float *dw, const float *partial, int n, int D) {
    __shared__ float of_warp[32][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, j = blockIdx.x * 32 + lane;
    float sum = 0;
    if (j < D)
        for (int b = warp; b < n; b += 32) sum += partial[static_cast<size_t>(b) * D + j];
    of_warp[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || j >= D) return;
    float total = 0;
    for (int k = 0; k < 32; k++) total += of_warp[k][lane];
    dw[j] += total;
}

template <class F> static void for_backward(int D, F f) {
    using std::integral_constant;
    integral_constant<int, 1> one;
    if (D <= 512)
        f(integral_constant<int, 64>(), one);
    else if (D <= 1024)
        f(integral_constant<int, 128>(), one);
    else if (D <= 2048)
        f(integral_constant<int, 256>(), one);
    else if (D <= 4096)
        f(integral_constant<int, 512>(), one);
    else if (D <= 8192)
        f(integral_constant<int, 1024>(), one);
    else
        f(integral_constant<int, 1024>(), integral_constant<int, 2>());
}

void norm_backward(enum real t, void *dx, float *dw, const void *dy, const void *x,
                   const float *rstd, const void *w, void *scratch, int N, int D,
                   cudaStream_t stream) {
    assert(D > 0 && D % 8 == 0 && D <= WIDEST);
    assert(aligned16(dx) && aligned16(dy) && aligned16(x) && aligned16(w) && aligned16(scratch));
    if (N == 0) return;
    int blocks = N < norm_walkers(D) ? N : norm_walkers(D);
    float *partial = static_cast<float *>(scratch);
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        for_backward(D, [&](auto threads, auto chunks) {
            backward<T, threads.value, chunks.value><<<blocks, threads.value, 0, stream>>>(
                static_cast<T *>(dx), partial, static_cast<const T *>(dy),
                static_cast<const T *>(x), rstd, static_cast<const T *>(w), N, D);
        });
    });
    check(cudaGetLastError());
    add_partials<<<ceil_div(D, 32), 1024, 0, stream>>>(dw, partial, blocks, D);
    check(cudaGetLastError());
}
