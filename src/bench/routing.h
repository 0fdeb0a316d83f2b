/* How tokens may be spread over experts. */
#ifndef REGULON_BENCH_ROUTING_H
#define REGULON_BENCH_ROUTING_H
#include <stdint.h>

/* "balanced"; "skew:S", log-normal with sigma S; "half", one expert has half of them; "empty", a
 * third of the experts have none; "one", one has all. weights[E], their sum 1, of the expected
 * shares; 0: no such name. */
int routing_weights(const char *name, double *weights, int E);

/* A token's A experts in ascending order, as `route` gives them. */
void routing_sort(int32_t *ids, int A);

/* The experts of N tokens, [N, A] and one more, as `route` gives them: different ones with chances
 * by the name's weights, for tokens first, first + 1, ... of a series. The caller frees them. */
int32_t *routing_ids(const char *name, int N, int E, int A, uint64_t first);

/* Rows of each expert, rows in all: shares rounded. */
void routing_counts(const double *weights, int64_t *counts, int E, int64_t rows);

/* Where each expert's rows begin, at multiples of `unit`: offsets[E + 1]. */
void routing_offsets(const int64_t *counts, int32_t *offsets, int E, int unit);
#endif
