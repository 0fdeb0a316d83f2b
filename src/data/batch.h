/* A micro-batch: documents packed to at most token_micro_batch_size tokens. */
#ifndef REGULON_DATA_BATCH_H
#define REGULON_DATA_BATCH_H
#include <stdint.h>

struct batch {
    int capacity; /* tokens it has room for */
    int n; /* tokens in it; the capacity - n rest is padding, which never reaches the model */
    int n_documents;
    int64_t n_targets; /* targets that count */
    double weight;     /* sum of weights over them */
    int32_t *tokens;   /* [capacity]; TOKEN_PAD from n on */
    int32_t *targets; /* [capacity] what token i is followed by, within its document; -100: does not
                         count */
    float *weights;   /* [capacity] weight of targets[i]; 0 where it does not count */
    int32_t *positions;  /* [capacity] from 0 within each document */
    int32_t *cu_seqlens; /* [n_documents + 1], room for capacity + 1 */
};

struct batch *batch_new(int capacity); /* no tokens, all padding; the caller frees it */
void batch_free(struct batch *b);
/* dst gets the tokens of src, whose capacity is the same. */
void batch_copy(struct batch *dst, const struct batch *src);
void batch_clear(struct batch *b); /* no tokens, all padding */

/* Appends a document: tokens[n], labels[n] (label i belongs to token i and is predicted from token
 * i-1; -100 does not count; labels[0] is never used), weights[n] of the labels, or NULL: all 1.
 * There must be room. The three may be the batch's own rooms: b->tokens + b->n, b->targets + b->n,
 * b->weights + b->n. */
void batch_append(struct batch *b, const int32_t *tokens, const int32_t *labels,
                  const float *weights, int n);
#endif
