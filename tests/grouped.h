/* What the tests of the grouped kernels share: arrays on both sides, BF16, errors, rows by expert.
 */
#ifndef REGULON_TESTS_GROUPED_H
#define REGULON_TESTS_GROUPED_H
#include "base/memory.h"
#include "base/random.h"
#include "bench/routing.h"
#include "grouped_gemm.h"
#include "tap.h"
#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* E experts, matrices of D and F, useful rows and how they are spread (bench/routing.h), rows of
 * the arrays behind the last expert's. */
struct round {
    int E, D, F, rows;
    const char *routing;
    int spare;
};

typedef uint16_t half_t; /* BF16 */

static inline float to_float(half_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline half_t to_half(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (half_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline void cuda(cudaError_t status) {
    if (status == cudaSuccess) return;
    tap_note("CUDA: %s", cudaGetErrorString(status));
    exit(1);
}

/* An array on both sides. */
struct both {
    void *host, *device;
    size_t bytes;
};

static inline struct both both_new(size_t bytes) {
    struct both b = {.host = memory_alloc(bytes), .bytes = bytes};
    cuda(cudaMalloc(&b.device, bytes));
    return b;
}

static inline void both_free(struct both b) {
    memory_free(b.host);
    cuda(cudaFree(b.device));
}

static inline void both_put(struct both b) {
    cuda(cudaMemcpy(b.device, b.host, b.bytes, cudaMemcpyHostToDevice));
}

static inline void both_get(struct both b) {
    cuda(cudaMemcpy(b.host, b.device, b.bytes, cudaMemcpyDeviceToHost));
}

/* The host's first n elements: normal times scale. */
static inline void both_fill(struct both b, size_t n, float scale, uint64_t seed) {
    half_t *x = b.host;
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) x[i] = to_half(scale * random_normal(seed, RANDOM_TEST, i));
}

/* Useful rows of each expert, and where its rows begin, multiples of `unit`: offsets[E + 1]. The
 * caller frees both. Returns offsets[E]. */
static inline size_t lay_out_rows(struct round r, int unit, int64_t **counts, int32_t **offsets) {
    double *weights = memory_alloc_array((size_t)r.E, sizeof *weights);
    int64_t *n = *counts = memory_alloc_array((size_t)r.E, sizeof *n);
    int32_t *at = *offsets = memory_alloc_array((size_t)r.E + 1, sizeof *at);
    routing_weights(r.routing, weights, r.E);
    routing_counts(weights, n, r.E, r.rows);
    routing_offsets(n, at, r.E, unit);
    memory_free(weights);
    return (size_t)at[r.E];
}

/* Rows that pad: their elements of `bytes` a row on the host become zero. */
static inline void zero_pads(struct both b, struct round r, const int64_t *counts,
                             const int32_t *offsets, size_t bytes) {
    for (int e = 0; e < r.E; e++) {
        size_t end = (size_t)offsets[e] + (size_t)counts[e];
        memset((char *)b.host + end * bytes, 0, ((size_t)offsets[e + 1] - end) * bytes);
    }
}

/* How many of n numbers have been written since they were poisoned with 0xff bytes. */
static inline size_t n_touched(const float *x, size_t n) {
    size_t touched = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        touched += bits != UINT32_MAX;
    }
    return touched;
}

struct test;
typedef void weights_product(struct test *t, struct gradient dw, struct grouped_rows r);

/* The product with rows first .. first + rows - 1 as its own, which are overwritten and then added
 * to, as those of `twice` were, and so have the same bits; the others are there once. twice: on the
 * host, rows of `cols`; what it is on the device is lost. Returns how many numbers are wrong. */
static inline size_t n_wrong_rows(struct test *t, struct both twice, size_t cols, size_t first,
                                  size_t rows, struct grouped_rows r, weights_product *product) {
    enum { GUARD = 64 }; /* rows around the own ones */
    struct both whole = {memory_alloc(twice.bytes), twice.device, twice.bytes},
                own = both_new((rows + 2 * GUARD) * cols * sizeof(float));
    const float *want = twice.host, *others = whole.host, *at = own.host;
    size_t guard = GUARD * cols, begin = first * cols, n = rows * cols, wrong = 0;
    cuda(cudaMemset(whole.device, 0xff, whole.bytes));
    cuda(cudaMemset(own.device, 0xff, own.bytes));
    for (int add = 0; add < 2; add++) {
        struct gradient dw = gradient_whole(whole.device, /*add=*/0);
        dw.own = (float *)own.device + guard, dw.own_add = add, dw.first = first, dw.rows = rows;
        product(t, dw, r);
    }
    both_get(whole), both_get(own);
    for (size_t i = 0; i < twice.bytes / sizeof *want; i++)
        if (i < begin || i >= begin + n) wrong += !(fabsf(2 * others[i] - want[i]) <= 1e-30f);
    for (size_t i = 0; i < n; i++)
        wrong += memcmp(at + guard + i, want + begin + i, sizeof *want) != 0;
    wrong += n_touched(others + begin, n);
    wrong += n_touched(at, guard) + n_touched(at + guard + n, guard);
    memory_free(whole.host);
    both_free(own);
    return wrong;
}

/* The same of some choices of rows: the first ones, some in the middle, all. */
static inline size_t n_wrong_own(struct test *t, struct both twice, size_t cols,
                                 struct grouped_rows r, weights_product *product) {
    size_t unit = GROUPED_LINES, n = twice.bytes / sizeof(float) / cols / unit;
    return n_wrong_rows(t, twice, cols, 0, n / 2 * unit, r, product) +
           n_wrong_rows(t, twice, cols, n / 3 * unit, (n - n / 3 - 1) * unit, r, product) +
           n_wrong_rows(t, twice, cols, 0, n * unit, r, product);
}

struct error {
    double difference, norm;
};

static inline void note(struct error *e, double got, double want) {
    e->difference += (got - want) * (got - want), e->norm += want * want;
}

/* Infinite for NaN, which fmax would pass over. */
static inline double relative(const struct error *e) {
    double r = e->norm > 0 ? sqrt(e->difference / e->norm) : e->difference;
    return isnan(r) ? INFINITY : r;
}
#endif
