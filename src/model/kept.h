/* The keys and values of sequences that grow, so that a new token costs one token's work (a KV
 * cache). Sequences lie in places; documents of a batch go on with them. */
#ifndef REGULON_MODEL_KEPT_H
#define REGULON_MODEL_KEPT_H
#include "backend/backend.h"
#include "data/batch.h"
#include "model/shape.h"

struct kept_all;

/* Bytes that one place of `room` tokens takes. */
size_t kept_bytes(const struct shape *s, const struct backend *be, int room);

/* n_places sequences of at most `room` tokens, all empty, for batches of at most `capacity`
 * tokens. be is borrowed. The caller frees it. */
struct kept_all *kept_new(const struct shape *s, struct backend *be, int n_places, int room,
                          int capacity);
void kept_free(struct kept_all *k); /* NULL is fine */

void kept_clear(struct kept_all *k, int place);       /* a new sequence begins there */
int kept_length(const struct kept_all *k, int place); /* tokens that the model has seen of it */

/* Appends the next tokens[n] of a sequence, n > 0, to the batch as a document, whose positions go
 * on. Once a place and batch; there must be room in both. Nothing in it is a target. */
void kept_append(struct kept_all *k, struct batch *b, int place, const int32_t *tokens, int n);

/* For passes.c: one layer, for the batch made last; the batch has been run. */
struct kept kept_layer(const struct kept_all *k, int layer);
void kept_advance(struct kept_all *k, const struct batch *b);
#endif
