#include "config.h"
#include "bench/routing.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int skew_of(const char *name, double *sigma) {
    return strncmp(name, "skew:", 5) == 0 && text_to_real(name + 5, sigma) && *sigma >= 0 &&
           *sigma <= 5;
}

int routing_weights(const char *name, double *weights, int E) {
    double sigma = 0, sum = 0;
    int half = strcmp(name, "half") == 0, empty = strcmp(name, "empty") == 0,
        one = strcmp(name, "one") == 0;
    if (!skew_of(name, &sigma) && !half && !empty && !one && strcmp(name, "balanced") != 0)
        return 0;
    for (int e = 0; e < E; e++) {
        weights[e] = exp(sigma * random_normal(7, RANDOM_TEST, (uint64_t)e));
        if (half) weights[e] = e ? 1 : E > 1 ? E - 1 : 1;
        if (empty) weights[e] = e % 3 != 1;
        if (one) weights[e] = e == E / 2;
        sum += weights[e];
    }
    for (int e = 0; e < E; e++) weights[e] /= sum;
    return 1;
}

static int ascending(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

void routing_sort(int32_t *ids, int A) {
    qsort(ids, (size_t)A, sizeof *ids, ascending);
}

/* A different experts with chances in proportion to weights[E], of those that are left each time;
 * where those have no weight, the next ones from one on that the token gives. */
static void choose(int32_t *ids, const double *weights, int E, int A, uint64_t token) {
    char *taken = memory_alloc((size_t)E);
    double left = 1;
    for (int a = 0; a < A; a++) {
        double at = random_uniform(11, RANDOM_TEST, token * (uint64_t)A + (uint64_t)a) * left;
        int chosen = -1;
        for (int e = 0; e < E && (chosen < 0 || at > 0); e++) {
            if (taken[e] || weights[e] == 0) continue;
            chosen = e;
            at -= weights[e];
        }
        for (int k = 0; chosen < 0; k++) {
            int e = (int)((token + (uint64_t)k) % (uint64_t)E);
            if (!taken[e]) chosen = e;
        }
        taken[chosen] = 1;
        left -= weights[chosen];
        ids[a] = chosen;
    }
    memory_free(taken);
    routing_sort(ids, A);
}

int32_t *routing_ids(const char *name, int N, int E, int A, uint64_t first) {
    double *weights = memory_alloc_array((size_t)E, sizeof *weights);
    int32_t *ids = memory_alloc_array((size_t)N * (size_t)A + 1, sizeof *ids);
    routing_weights(name, weights, E);
    for (int i = 0; i < N; i++)
        choose(ids + (size_t)i * (size_t)A, weights, E, A, first + (uint64_t)i);
    memory_free(weights);
    return ids;
}

void routing_counts(const double *weights, int64_t *counts, int E, int64_t rows) {
    double before = 0;
    int64_t given = 0;
    for (int e = 0; e < E; e++) {
        before += weights[e];
        int64_t until = e == E - 1 ? rows : (int64_t)llround(before * (double)rows);
        counts[e] = until - given;
        given = until;
    }
    if (counts[E - 1] > 0 && weights[E - 1] == 0) { /* what rounding left over */
        int64_t left = counts[E - 1];
        int most = 0;
        for (int e = 0; e < E - 1; e++)
            if (weights[e] > weights[most]) most = e;
        counts[E - 1] = 0, counts[most] += left;
    }
}

void routing_offsets(const int64_t *counts, int32_t *offsets, int E, int unit) {
    offsets[0] = 0;
    for (int e = 0; e < E; e++)
        offsets[e + 1] = offsets[e] + (int32_t)((counts[e] + unit - 1) / unit * unit);
}
