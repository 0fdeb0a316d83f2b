/* A block a token; a thread takes the same pairs of several heads, so that it reads their cosines
 * and sines once. */
#include "rope.h"
#include "vector.cuh"

enum { THREADS = 128 };

/* W pairs at a time, from the first half of a head and from the second */
template <class T, int W>
static __global__ void __launch_bounds__(THREADS)
    rotate(T *qkv, const int32_t *positions, const float *table, int heads, int K, int stride,
           float sign) {
    const int half = K / 2, groups = half / W, together = THREADS / groups;
    const int j = static_cast<int>(threadIdx.x) % groups * W, own = threadIdx.x / groups;
    if (own >= together) return;
    table += static_cast<size_t>(positions[blockIdx.x]) * K + j;
    qkv += static_cast<size_t>(blockIdx.x) * stride + j;
    float cosine[W], sine[W];
    unpack(cosine, load<W>(table));
    unpack(sine, load<W>(table + half));
    for (int h = own; h < heads; h += together) {
        T *low = qkv + h * K, *high = low + half;
        float a[W], b[W], c[W], d[W];
        unpack(a, load<W>(low));
        unpack(b, load<W>(high));
        for (int k = 0; k < W; k++) {
            c[k] = a[k] * cosine[k] - b[k] * (sign * sine[k]);
            d[k] = b[k] * cosine[k] + a[k] * (sign * sine[k]);
        }
        store(low, pack<T>(c));
        store(high, pack<T>(d));
    }
}

void rope_rotate(enum real t, void *qkv, const int32_t *positions, const float *table, int heads,
                 int K, int stride, int N, int inverse, cudaStream_t stream) {
    assert(K > 0 && K % 8 == 0 && K <= 8 * THREADS && stride % 8 == 0);
    assert(aligned16(qkv) && aligned16(table));
    if (N == 0) return;
    float sign = inverse ? -1 : 1;
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        auto kernel = K % 16 == 0 ? rotate<T, 8> : rotate<T, 4>;
        kernel<<<N, THREADS, 0, stream>>>(static_cast<T *>(qkv), positions, table, heads, K, stride,
                                          sign);
    });
    check(cudaGetLastError());
}
