/* Counter-based random numbers: each is a pure function of (seed, stream, index), so nothing of
 * theirs needs saving and no grid changes them. Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel
 * Random Numbers: As Easy as 1, 2, 3; SC 2011). */
#ifndef REGULON_BASE_RANDOM_H
#define REGULON_BASE_RANDOM_H
#include <stdint.h>

/* What a stream is for. Init streams follow: RANDOM_INIT + index of the tensor. */
enum random_stream {
    RANDOM_ORDER = 1,
    RANDOM_STRAND,
    RANDOM_SHUFFLE,
    RANDOM_TEST = 5,
    RANDOM_GENERATE,
    RANDOM_UPCYCLE,
    RANDOM_INIT = 1024
};

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index);
double random_uniform(uint64_t seed, uint64_t stream, uint64_t index); /* in (0, 1) */
float random_normal(uint64_t seed, uint64_t stream, uint64_t index);   /* mean 0, variance 1 */

/* A permutation of 0..n-1 chosen by key: element i goes to the returned place. n >= 1, i < n.
 * Constant expected time: a four-round Feistel network on the next power of four, walked until it
 * falls below n. */
uint64_t random_permute(uint64_t key, uint64_t i, uint64_t n);
#endif
