/* Bytes of scratch that kernels work in, and the numbers that they follow from. Arithmetic alone:
 * known where there is no CUDA, too. Each begins at a multiple of 256 bytes. */
#ifndef REGULON_KERNELS_SCRATCH_H
#define REGULON_KERNELS_SCRATCH_H
#include "low_sums.h"
#include <stddef.h>
#include <stdint.h>

enum {
    SORT_KEYS = 256,
    SORT_BLOCKS = 128,
    EMBED_CHUNKS = 256,     /* at most */
    EMBED_LEAST_CHUNK = 64, /* tokens */
    ROUTE_BLOCKS = 512,
    SUM_BLOCKS = 1024,
    LOW_BLOCKS = 528, /* four on each of 132 multiprocessors */
    PEERS = 16,        /* ranks whose memory a GPU reaches, at most */
    PEER_CHOICES = 32, /* experts of a token there, at most */
    FLASH_ROWS = 128   /* tokens are padded to a multiple */
};

static inline size_t scratch_lines(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

static inline size_t sort_scratch(void) {
    return sizeof(uint32_t) * SORT_KEYS * SORT_BLOCKS;
}

/* Tokens of a chunk of the embedding's gradient. */
static inline int embed_chunk(int N) {
    int chunk = (N + EMBED_CHUNKS - 1) / EMBED_CHUNKS;
    return chunk > EMBED_LEAST_CHUNK ? chunk : EMBED_LEAST_CHUNK;
}

/* Where things lie in its scratch. */
struct embed_space {
    size_t counts, order[2], sorted, heads, tails, bytes;
};

static inline struct embed_space embed_space_of(int N, int D) {
    int chunk = embed_chunk(N), chunks = (N + chunk - 1) / chunk;
    size_t places = scratch_lines((size_t)N * sizeof(int32_t)),
           sums = scratch_lines((size_t)chunks * sizeof(float) * (size_t)D);
    struct embed_space s;
    s.counts = 0;
    s.order[0] = s.counts + sort_scratch();
    s.order[1] = s.order[0] + places;
    s.sorted = s.order[1] + places;
    s.heads = s.sorted + places;
    s.tails = s.heads + sums;
    s.bytes = s.tails + sums;
    return s;
}

static inline size_t embed_scratch(int N, int D) {
    return embed_space_of(N, D).bytes;
}

/* Blocks that walk the rows of a norm's gradient: with one chunk a thread, 1024 threads on each of
 * 132 multiprocessors, twice that where a block has them alone. */
static inline int norm_walkers(int D) {
    return D <= 1024 ? 1056 : D <= 2048 ? 528 : 264;
}

static inline size_t norm_scratch(int D) {
    return (size_t)norm_walkers(D) * (size_t)D * sizeof(float);
}

static inline size_t route_scratch(int E) {
    size_t own = ROUTE_BLOCKS * (((size_t)E + 2) * sizeof(double) + (size_t)E * sizeof(uint32_t));
    return own > sort_scratch() ? own : sort_scratch();
}

static inline size_t sum_scratch(void) {
    return SUM_BLOCKS * sizeof(double);
}

static inline size_t low_statistics_scratch(void) {
    return LOW_BLOCKS * N_LOW_SUMS * sizeof(double);
}

/* H query heads; two floats for each row of theirs */
static inline size_t flash_scratch(int N, int H) {
    size_t rows = ((size_t)N + FLASH_ROWS - 1) / FLASH_ROWS * FLASH_ROWS;
    return 2 * sizeof(float) * (size_t)H * rows;
}
#endif
