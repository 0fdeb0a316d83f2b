/* flash.h for FP32 without tensor cores, for tests: one warp a query (or a key) and a head.
 * Scores: a lane takes one of 32 keys (queries) at a time; outputs: a lane takes every 32nd column.
 * The warp's own row lies in shared memory. */
#include "flash.cuh"

enum { WARPS = 4, WIDEST = 256, COLUMNS = WIDEST / 32 };

static __device__ float dot(const float *x, const float *y, int K) {
    float sum = 0;
    for (int k = 0; k < K; k++) sum += x[k] * y[k];
    return sum;
}

/* The warp's copy of a row of K. */
static __device__ void keep_row(float *to, const float *x, int K) {
    for (int k = (int)threadIdx.x % 32; k < K; k += 32) to[k] = x[k];
    __syncwarp();
}

/* sum[c] += weight of lane j, times x[j][lane + 32 c], over the lanes j < n in order */
static __device__ void add_rows(float (&sum)[COLUMNS], float weight, const float *x, size_t stride,
                                int n, int K) {
    for (int j = 0; j < n; j++, x += stride) {
        const float w = __shfl_sync(~0u, weight, j);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const int k = (int)threadIdx.x % 32 + 32 * c;
            if (k < K) sum[c] += w * x[k];
        }
    }
}

static __device__ void store_row(float *to, const float (&sum)[COLUMNS], float factor, int K) {
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        const int k = (int)threadIdx.x % 32 + 32 * c;
        if (k < K) to[k] = factor * sum[c];
    }
}

/* Which of n_rows x heads rows this warp has; the grid has one warp each. */
static __device__ bool row_of_warp(int *row, int *head, int n_rows, int heads) {
    const size_t warp = (size_t)blockIdx.x * WARPS + threadIdx.x / 32;
    *row = (int)(warp / (size_t)heads), *head = (int)(warp % (size_t)heads);
    return *row < n_rows;
}

static __global__ void forward_kernel(float *out, float *lse, const float *qkv,
                                      attention_problem p) {
    __shared__ float rows[WARPS][WIDEST];
    int i, h;
    if (!row_of_warp(&i, &h, p.N, p.H)) return;
    const int lane = (int)threadIdx.x % 32, g = h / (p.H / p.G);
    const size_t stride = (size_t)(p.H + 2 * p.G) * (size_t)p.K;
    const float *k = qkv + (p.H + g) * p.K, *v = k + p.G * p.K;
    float *q = rows[threadIdx.x / 32];
    keep_row(q, qkv + (size_t)i * stride + h * p.K, p.K);
    float most = -INFINITY, sum = 0, o[COLUMNS] = {};
    for (int first = first_key(p, i); first <= i; first += 32) {
        const int n = min(32, i + 1 - first);
        const size_t at = (size_t)(first + lane) * stride;
        const float s = lane < n ? p.scale * dot(q, k + at, p.K) : -INFINITY;
        const float next = fmaxf(most, warp_max(s)), factor = expf(most - next);
        const float weight = expf(s - next);
        sum = sum * factor + warp_sum(weight);
        most = next;
        for (int c = 0; c < COLUMNS; c++) o[c] *= factor;
        add_rows(o, weight, v + (size_t)first * stride, stride, n, p.K);
    }
    store_row(out + ((size_t)i * (size_t)p.H + (size_t)h) * (size_t)p.K, o, 1 / sum, p.K);
    if (lane == 0) lse[(size_t)i * (size_t)p.H + (size_t)h] = most + logf(sum);
}

/* P and dS of a query's row q and a key's row k: dot products of K, and the query's terms */
static __device__ void weights(float *probability, float *ds, const float *q, const float *k,
                               const float *dout, const float *v, float2 term,
                               const attention_problem &p) {
    *probability = exp2f(p.scale * LOG2_E * dot(q, k, p.K) - term.x);
    *ds = *probability * (dot(dout, v, p.K) - term.y);
}

static __global__ void key_kernel(float *dqkv, const float *dout, const float2 *terms,
                                  const float *qkv, attention_problem p) {
    __shared__ float rows[WARPS][2][WIDEST];
    int j, g;
    if (!row_of_warp(&j, &g, p.N, p.G)) return;
    const int lane = (int)threadIdx.x % 32, past = past_query(p, j);
    const size_t stride = (size_t)(p.H + 2 * p.G) * (size_t)p.K,
                 out_stride = (size_t)p.H * (size_t)p.K, padded = (size_t)attention_padded(p.N),
                 at = (size_t)j * stride + (size_t)((p.H + g) * p.K);
    float *k = rows[threadIdx.x / 32][0], *v = rows[threadIdx.x / 32][1];
    keep_row(k, qkv + at, p.K);
    keep_row(v, qkv + at + p.G * p.K, p.K);
    float dk[COLUMNS] = {}, dv[COLUMNS] = {};
    for (int h = g * (p.H / p.G); h < (g + 1) * (p.H / p.G); h++) {
        for (int first = j; first < past; first += 32) {
            const int n = min(32, past - first);
            const float *q = qkv + (size_t)first * stride + h * p.K,
                        *dy = dout + (size_t)first * out_stride + h * p.K;
            float probability = 0, ds = 0;
            if (lane < n)
                weights(&probability, &ds, q + (size_t)lane * stride, k,
                        dy + (size_t)lane * out_stride, v,
                        terms[(size_t)h * padded + (size_t)(first + lane)], p);
            add_rows(dv, probability, dy, out_stride, n, p.K);
            add_rows(dk, ds, q, stride, n, p.K);
        }
    }
    store_row(dqkv + at, dk, p.scale, p.K);
    store_row(dqkv + at + p.G * p.K, dv, 1, p.K);
}

static __global__ void query_kernel(float *dqkv, const float *dout, const float2 *terms,
                                    const float *qkv, attention_problem p) {
    __shared__ float rows[WARPS][2][WIDEST];
    int i, h;
    if (!row_of_warp(&i, &h, p.N, p.H)) return;
    const int lane = (int)threadIdx.x % 32, g = h / (p.H / p.G);
    const size_t stride = (size_t)(p.H + 2 * p.G) * (size_t)p.K,
                 padded = (size_t)attention_padded(p.N),
                 at = (size_t)i * stride + (size_t)(h * p.K), term = (size_t)h * padded + (size_t)i;
    const float *k = qkv + (p.H + g) * p.K, *v = k + p.G * p.K;
    float *q = rows[threadIdx.x / 32][0], *dy = rows[threadIdx.x / 32][1];
    keep_row(q, qkv + at, p.K);
    keep_row(dy, dout + ((size_t)i * (size_t)p.H + (size_t)h) * (size_t)p.K, p.K);
    float dq[COLUMNS] = {};
    for (int first = first_key(p, i); first <= i; first += 32) {
        const int n = min(32, i + 1 - first);
        const size_t key = (size_t)(first + lane) * stride;
        float probability = 0, ds = 0;
        if (lane < n) weights(&probability, &ds, q, k + key, dy, v + key, terms[term], p);
        add_rows(dq, ds, k + (size_t)first * stride, stride, n, p.K);
    }
    store_row(dqkv + at, dq, p.scale, p.K);
}

static int blocks(int n_rows, int heads) {
    return (int)ceil_div((size_t)n_rows * (size_t)heads, (size_t)WARPS);
}

void flash_plain_forward(float *out, float *lse, const float *qkv, attention_problem p,
                         cudaStream_t stream) {
    launch(forward_kernel, blocks(p.N, p.H), 32 * WARPS, 0, stream, out, lse, qkv, p);
}

void flash_plain_backward(float *dqkv, const float *dout, const float2 *terms, const float *qkv,
                          attention_problem p, cudaStream_t stream) {
    launch(key_kernel, blocks(p.N, p.G), 32 * WARPS, 0, stream, dqkv, dout, terms, qkv, p);
    launch(query_kernel, blocks(p.N, p.H), 32 * WARPS, 0, stream, dqkv, dout, terms, qkv, p);
}
