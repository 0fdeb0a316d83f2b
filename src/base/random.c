#include "config.h"
#include "base/random.h"
#include <assert.h>
#include <math.h>

static void philox(uint64_t key, uint64_t stream, uint64_t index, uint32_t out[4]) {
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                     (uint32_t)(stream >> 32)};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[0] = n0, c[1] = (uint32_t)p1, c[2] = n2, c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++) out[i] = c[i];
}

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t r[4];
    philox(seed, stream, index, r);
    return (uint64_t)r[1] << 32 | r[0];
}

static double unit(uint32_t hi, uint32_t lo) {
    return ((double)((uint64_t)hi << 21 ^ lo >> 11) + 0.5) * 0x1p-53;
}

double random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t r[4];
    philox(seed, stream, index, r);
    return unit(r[0], r[1]);
}

float random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
    uint32_t r[4];
    philox(seed, stream, index, r);
    /* Box and Muller */
    return (float)(sqrt(-2 * log(unit(r[0], r[1]))) * cos(6.283185307179586 * unit(r[2], r[3])));
}

uint64_t random_permute(uint64_t key, uint64_t i, uint64_t n) {
    assert(i < n);
    int half = 1;
    while (half < 32 && (uint64_t)1 << 2 * half < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (random_bits(key, round, right) & mask);
            left = right, right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
