/* Labels arrive beside their own token and leave one place to the left, beside the token that
 * predicts them. */
#include "config.h"
#include "data/batch.h"
#include "base/memory.h"
#include "data/tokens.h"
#include <assert.h>
#include <string.h>

struct batch *batch_new(int capacity) {
    struct batch *b = memory_alloc(sizeof *b);
    size_t n = (size_t)capacity;
    b->capacity = capacity;
    b->tokens = memory_alloc_array(n, sizeof *b->tokens);
    b->targets = memory_alloc_array(n, sizeof *b->targets);
    b->weights = memory_alloc_array(n, sizeof *b->weights);
    b->positions = memory_alloc_array(n, sizeof *b->positions);
    b->cu_seqlens = memory_alloc_array(n + 1, sizeof *b->cu_seqlens);
    batch_clear(b);
    return b;
}

void batch_free(struct batch *b) {
    if (b == NULL) return;
    memory_free(b->tokens);
    memory_free(b->targets);
    memory_free(b->weights);
    memory_free(b->positions);
    memory_free(b->cu_seqlens);
    memory_free(b);
}

void batch_copy(struct batch *dst, const struct batch *src) {
    assert(dst->capacity == src->capacity);
    size_t bytes = (size_t)src->capacity * sizeof(int32_t);
    memcpy(dst->tokens, src->tokens, bytes);
    memcpy(dst->targets, src->targets, bytes);
    memcpy(dst->weights, src->weights, bytes);
    memcpy(dst->positions, src->positions, bytes);
    memcpy(dst->cu_seqlens, src->cu_seqlens, ((size_t)src->n_documents + 1) * sizeof(int32_t));
    dst->n = src->n, dst->n_documents = src->n_documents;
    dst->n_targets = src->n_targets, dst->weight = src->weight;
}

void batch_clear(struct batch *b) {
    b->n = b->n_documents = 0;
    b->n_targets = 0;
    b->weight = 0;
    b->cu_seqlens[0] = 0;
    for (int i = 0; i < b->capacity; i++) {
        b->tokens[i] = TOKEN_PAD;
        b->targets[i] = -100;
        b->weights[i] = 0;
        b->positions[i] = 0;
    }
}

void batch_append(struct batch *b, const int32_t *tokens, const int32_t *labels,
                  const float *weights, int n) {
    assert(n >= 0 && n <= b->capacity - b->n);
    if (n == 0) return;
    int32_t *to = b->tokens + b->n, *targets = b->targets + b->n, *positions = b->positions + b->n;
    float *w = b->weights + b->n;
    if (to != tokens) memcpy(to, tokens, (size_t)n * sizeof *to);
    int64_t n_targets = 0;
    double weight = 0;
    /* upwards, since labels may be targets and weights w */
    for (int i = 0; i < n; i++) {
        int counts = i + 1 < n && labels[i + 1] != -100;
        float x = !counts ? 0 : weights ? weights[i + 1] : 1;
        targets[i] = counts ? labels[i + 1] : -100;
        w[i] = x;
        positions[i] = i;
        n_targets += counts;
        weight += (double)x;
    }
    b->n_targets += n_targets;
    b->weight += weight;
    b->n += n;
    b->cu_seqlens[++b->n_documents] = b->n;
}
