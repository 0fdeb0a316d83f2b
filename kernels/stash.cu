#include "stash.cuh"
#include "check.h"

static __global__ void place_own(struct stash_place p, const int32_t *rows) {
    place_rows(p, 0, 0, *rows);
}

extern "C" void stash_place_own(struct stash_place p, const int32_t *offsets, int E,
                                cudaStream_t stream) {
    place_own<<<1, 1, 0, stream>>>(p, offsets + E);
    check(cudaGetLastError());
}
