/* A block a token. One pass finds the largest logit and the sum of exponentials together
 * (Milakov and Gimelshein 2018, algorithm 3), the next writes the gradient. */
#include "loss.h"
#include "vector.cuh"
#include <cfloat>

enum { BATCH = 4 };

/* The largest of what was seen, and the sum of e^(x - most). */
struct running {
    float most = -FLT_MAX; /* not -inf: -inf - -inf is NaN */
    float sum = 0;
};

template <int N> static __device__ __forceinline__ void see(running &r, const float (&x)[N]) {
    float most = r.most;
#pragma unroll
    for (int k = 0; k < N; k++) most = fmaxf(most, x[k]);
    r.sum *= __expf(r.most - most);
    r.most = most;
#pragma unroll
    for (int k = 0; k < N; k++) r.sum += __expf(x[k] - most);
}

/* What is written of a row: factor e^(x - most), less `at_target` there. */
struct gradient {
    float most, factor, at_target;
    int target;
    __device__ __forceinline__ float operator()(float x, int j) const {
        return factor * __expf(x - most) - (j == target ? at_target : 0);
    }
};

/* A row of V begins anywhere; `head` elements bring it to a multiple of four, then come n_fours
 * groups, then the tail. An element of head or tail belongs to thread `lone` = its place among
 * them, at most 6. */
struct pieces {
    int head, n_fours;
    __device__ __forceinline__ pieces(size_t row, int V) {
        head = static_cast<int>(-row & 3);
        if (head > V) head = V;
        n_fours = (V - head) / 4;
    }
    __device__ __forceinline__ int lone(int thread) const {
        return thread < head ? thread : thread + 4 * n_fours;
    }
};

/* The second pass goes backward: it begins with what the caches got last. */
template <class T, int THREADS>
static __global__ void __launch_bounds__(THREADS, THREADS == 512 ? 2 : 1)
    cross_entropy(T *dlogits, double *losses, const float *logits, const int32_t *targets,
                  const float *weights, const float *scale_at, int V) {
    const size_t row = static_cast<size_t>(blockIdx.x) * V;
    const int target = targets[blockIdx.x];
    const pieces at(row, V);
    const int lone = at.lone(threadIdx.x), n_fours = at.n_fours;
    const float *x = logits + row, *x4 = x + at.head;
    T *dx = dlogits ? dlogits + row : nullptr, *dx4 = dx + at.head;
    if (target < 0) {
        if (threadIdx.x == 0) losses[blockIdx.x] = 0;
        if (!dx) return;
        const float zeros[4] = {};
        for (int k = threadIdx.x; k < n_fours; k += THREADS) store(dx4 + 4 * k, pack<T>(zeros));
        if (lone < V) dx[lone] = from_float<T>(0);
        return;
    }
    const float logit = x[target], weight = weights[blockIdx.x];
    running r;
    for (int first = threadIdx.x; first < n_fours; first += THREADS * BATCH) {
        float v[4 * BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            int k = first + b * THREADS;
            float f[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
            if (k < n_fours) unpack(f, load<4>(x4 + 4 * k));
            for (int i = 0; i < 4; i++) v[4 * b + i] = f[i];
        }
        see(r, v);
    }
    if (lone < V) see(r, {x[lone]});
    const float most = block_max<THREADS>(r.most);
    const float sum = block_sum<THREADS>(r.sum * __expf(r.most - most));
    if (threadIdx.x == 0)
        losses[blockIdx.x] = static_cast<double>(weight) *
                             (static_cast<double>(most) + log(static_cast<double>(sum)) -
                              static_cast<double>(logit));
    if (!dx) return;
    const float scale = *scale_at;
    const gradient g = {most, scale * weight / sum, scale * weight, target};
    if (lone < V) dx[lone] = from_float<T>(g(x[lone], lone));
    const int rounds = ceil_div(n_fours, THREADS * BATCH);
    for (int round = rounds - 1; round >= 0; round--) {
        int first = round * THREADS * BATCH + threadIdx.x;
        vec<float, 4> v[BATCH];
#pragma unroll
        for (int b = BATCH - 1; b >= 0; b--) {
            int k = first + b * THREADS;
            if (k < n_fours) v[b] = load<4>(x4 + 4 * k);
        }
#pragma unroll
        for (int b = BATCH - 1; b >= 0; b--) {
            int k = first + b * THREADS;
            if (k >= n_fours) continue;
            float f[4];
            unpack(f, v[b]);
            for (int i = 0; i < 4; i++) f[i] = g(f[i], at.head + 4 * k + i);
            store(dx4 + 4 * k, pack<T>(f));
        }
    }
}

void loss_forward_backward(enum real t, void *dlogits, double *losses, const float *logits,
                           const int32_t *targets, const float *weights, const float *scale, int n,
                           int V, cudaStream_t stream) {
    assert(V > 0 && aligned16(dlogits) && aligned16(logits));
    if (n == 0) return;
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        auto kernel = V <= 512    ? cross_entropy<T, 32>
                      : V <= 8192 ? cross_entropy<T, 128>
                                  : cross_entropy<T, 512>;
        int threads = V <= 512 ? 32 : V <= 8192 ? 128 : 512;
        kernel<<<n, threads, 0, stream>>>(static_cast<T *>(dlogits), losses, logits, targets,
                                          weights, scale, V);
    });
    check(cudaGetLastError());
}
