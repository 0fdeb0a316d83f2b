/* AdamW, and the sums that decide on a step. */
#include "optimizer.h"
#include "access.cuh"
#include "sum.cuh"
#include <cmath>
#include <type_traits>

enum { THREADS = 256, EACH = 8 /* elements a thread */ };

static __device__ __forceinline__ double term(double x) {
    return x;
}

static __device__ __forceinline__ double term(float x) {
    return static_cast<double>(x) * static_cast<double>(x);
}

/* part[gridDim.x]. Single elements, eight in flight a thread: bytes enough on their way, and any
 * address will do. */
template <class T>
static __global__ void __launch_bounds__(THREADS) sum_part(double *part, const T *x, size_t n) {
    size_t stride = static_cast<size_t>(gridDim.x) * THREADS;
    size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
    double sum = 0;
    for (; i + (EACH - 1) * stride < n; i += EACH * stride) {
        T ahead[EACH];
#pragma unroll
        for (int u = 0; u < EACH; u++) ahead[u] = x[i + u * stride];
#pragma unroll
        for (int u = 0; u < EACH; u++) sum += term(ahead[u]);
    }
    for (; i < n; i += stride) sum += term(x[i]);
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(SUM_BLOCKS)
    sum_total(double *sum, const double *part, int parts) {
    double total = block_sum<SUM_BLOCKS>(threadIdx.x < parts ? part[threadIdx.x] : 0.0);
    if (threadIdx.x == 0) *sum += total;
}

template <class T>
static void sum_terms(double *sum, const T *x, size_t n, void *scratch, cudaStream_t stream) {
    if (n == 0) return;
    double *part = static_cast<double *>(scratch);
    size_t fit = ceil_div(n, static_cast<size_t>(THREADS * EACH));
    int blocks = fit < SUM_BLOCKS ? static_cast<int>(fit) : SUM_BLOCKS;
    sum_part<<<blocks, THREADS, 0, stream>>>(part, x, n);
    check(cudaGetLastError());
    sum_total<<<1, SUM_BLOCKS, 0, stream>>>(sum, part, blocks);
    check(cudaGetLastError());
}

extern "C" void sum_doubles(double *sum, const double *x, size_t n, void *scratch,
                            cudaStream_t stream) {
    sum_terms(sum, x, n, scratch, stream);
}

extern "C" void sum_squares(double *sum, const float *x, size_t n, void *scratch,
                            cudaStream_t stream) {
    sum_terms(sum, x, n, scratch, stream);
}

/* One warp. */
static __global__ void clip(float *factor, const double *values, int n_values, const double *norm2,
                            double max_norm) {
    bool finite = isfinite(*norm2);
    for (int i = threadIdx.x; i < n_values; i += 32) finite = finite && isfinite(values[i]);
    finite = __all_sync(~0u, finite);
    double scale = max_norm > 0 ? max_norm / (sqrt(*norm2) + 1e-6) : 1;
    if (threadIdx.x == 0) *factor = finite ? static_cast<float>(scale < 1 ? scale : 1) : -1;
}

extern "C" void clip_decide(float *factor, const double *values, int n_values, const double *norm2,
                            double max_norm, cudaStream_t stream) {
    clip<<<1, 32, 0, stream>>>(factor, values, n_values, norm2, max_norm);
    check(cudaGetLastError());
}

/* Where a thread's run u of W elements begins: runs of neighbouring threads lie side by side. */
template <int W> static __device__ __forceinline__ size_t run_at(int u) {
    return (static_cast<size_t>(blockIdx.x) * (THREADS * EACH / W) + u * THREADS + threadIdx.x) * W;
}

/* f(W as a type, first, count) for the part of n elements that goes in runs of four, then the rest
 * one by one; all one by one where an address does not allow more. */
template <class F> static void in_runs(bool aligned, size_t n, F f) {
    size_t wide = aligned ? n / 4 * 4 : 0;
    if (wide > 0) f(std::integral_constant<int, 4>(), size_t(0), wide);
    if (n > wide) f(std::integral_constant<int, 1>(), wide, n - wide);
}

static unsigned blocks_for(size_t n) {
    size_t blocks = ceil_div(n, static_cast<size_t>(THREADS * EACH));
    assert(blocks <= INT32_MAX);
    return static_cast<unsigned>(blocks);
}

struct adamw_arrays {
    float *master, *m, *v;
    const float *grad, *factor;
};

/* What adamw needs of the rule; the order of the operations is that of cpu_optimizer.c. */
struct adamw_step {
    float beta1, beta2, eps, keep, step, root;
};

/* n is a multiple of W. weight may be the master, or NULL. */
template <class T, int W>
static __global__ void __launch_bounds__(THREADS)
    adamw(struct adamw_arrays a, T *weight, size_t n, struct adamw_step s) {
    const int RUNS = EACH / W;
    float w[RUNS][W], m[RUNS][W], v[RUNS][W], g[RUNS][W];
#pragma unroll
    for (int u = 0; u < RUNS; u++) {
        size_t i = run_at<W>(u);
        if (i >= n) break;
        read_run(g[u], a.grad + i), read_run(w[u], a.master + i);
        read_run(m[u], a.m + i), read_run(v[u], a.v + i);
    }
    float factor = *a.factor; /* after the loads above, so as not to wait for it first */
    if (factor < 0) return;
#pragma unroll
    for (int u = 0; u < RUNS; u++) {
        size_t i = run_at<W>(u);
        if (i >= n) break;
        for (int j = 0; j < W; j++) {
            float grad = factor * g[u][j];
            m[u][j] = s.beta1 * m[u][j] + (1 - s.beta1) * grad;
            v[u][j] = s.beta2 * v[u][j] + (1 - s.beta2) * grad * grad;
            w[u][j] = w[u][j] * s.keep - s.step * m[u][j] / (sqrtf(v[u][j]) * s.root + s.eps);
        }
        write_run(a.m + i, m[u]), write_run(a.v + i, v[u]);
        write_run(a.master + i, w[u]);
        if (weight && static_cast<void *>(weight) != a.master) write_run(weight + i, w[u]);
    }
}

extern "C" void adamw_update(enum real t, float *master, void *weight, float *m, float *v,
                             const float *grad, const float *factor, size_t n,
                             struct adamw_rule rule, cudaStream_t stream) {
    struct adamw_step step = {rule.beta1,
                              rule.beta2,
                              rule.eps,
                              1 - rule.lr * rule.decay,
                              rule.lr / rule.correction1,
                              1 / sqrtf(rule.correction2)};
    bool aligned = aligned16(master) && aligned16(m) && aligned16(v) && aligned16(grad) &&
                   reinterpret_cast<uintptr_t>(weight) % (4 * real_bytes(t)) == 0;
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        in_runs(aligned, n, [&](auto run, size_t i, size_t count) {
            struct adamw_arrays a = {master + i, m + i, v + i, grad + i, factor};
            adamw<T, run.value><<<blocks_for(count), THREADS, 0, stream>>>(
                a, weight ? static_cast<T *>(weight) + i : nullptr, count, step);
            check(cudaGetLastError());
        });
    });
}

template <class T, int W>
static __global__ void __launch_bounds__(THREADS) convert(T *dst, const float *src, size_t n) {
    const int RUNS = EACH / W;
    float x[RUNS][W];
#pragma unroll
    for (int u = 0; u < RUNS; u++)
        if (run_at<W>(u) < n) read_run(x[u], src + run_at<W>(u));
#pragma unroll
    for (int u = 0; u < RUNS; u++)
        if (run_at<W>(u) < n) write_run(dst + run_at<W>(u), x[u]);
}

extern "C" void real_from_float(enum real t, void *dst, const float *src, size_t n,
                                cudaStream_t stream) {
    bool aligned = aligned16(src) && reinterpret_cast<uintptr_t>(dst) % (4 * real_bytes(t)) == 0;
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        in_runs(aligned, n, [&](auto run, size_t i, size_t count) {
            convert<T, run.value><<<blocks_for(count), THREADS, 0, stream>>>(
                static_cast<T *>(dst) + i, src + i, count);
            check(cudaGetLastError());
        });
    });
}

template <int W>
static __global__ void __launch_bounds__(THREADS) add(float *sum, const float *x, size_t n) {
    const int RUNS = EACH / W;
    float a[RUNS][W], b[RUNS][W];
#pragma unroll
    for (int u = 0; u < RUNS; u++)
        if (run_at<W>(u) < n) read_run(a[u], sum + run_at<W>(u)), read_run(b[u], x + run_at<W>(u));
#pragma unroll
    for (int u = 0; u < RUNS; u++) {
        if (run_at<W>(u) >= n) break;
        for (int j = 0; j < W; j++) a[u][j] += b[u][j];
        write_run(sum + run_at<W>(u), a[u]);
    }
}

extern "C" void add_floats(float *sum, const float *x, size_t n, cudaStream_t stream) {
    in_runs(aligned16(sum) && aligned16(x), n, [&](auto run, size_t i, size_t count) {
        add<run.value><<<blocks_for(count), THREADS, 0, stream>>>(sum + i, x + i, count);
        check(cudaGetLastError());
    });
}
