/* What the tests of the grouped kernels share: arrays on both sides, BF16, errors, rows by expert.
 */
#ifndef REGULON_TESTS_GROUPED_H
#define REGULON_TESTS_GROUPED_H
#include "base/memory.h"
#include "base/random.h"
#include "bench/routing.h"
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
