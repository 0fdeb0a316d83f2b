/* A block of MXFP8: 32 values to their codes and their scale (src/backend/formats.h). */
#ifndef REGULON_KERNELS_MXFP8_BLOCK_CUH
#define REGULON_KERNELS_MXFP8_BLOCK_CUH
#include "fp8.cuh"
#include "mxfp8.cuh"
#include "mxfp8_scales.h"

struct mxfp8_codes_of_block {
    uint32_t four[MXFP8_BLOCK / 4];
    uint8_t scale;
};

static __device__ __forceinline__ mxfp8_codes_of_block
mxfp8_pack_block(const float (&v)[MXFP8_BLOCK]) {
    mxfp8_codes_of_block b;
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < MXFP8_BLOCK; i++) most = max(most, magnitude(v[i]));
    const mxfp8_scale s = mxfp8_scale_of(__uint_as_float(most));
#pragma unroll
    for (int i = 0; i < MXFP8_BLOCK / 4; i++)
        b.four[i] =
            fp8_four(__fmul_rn(v[4 * i], s.inverse), __fmul_rn(v[4 * i + 1], s.inverse),
                     __fmul_rn(v[4 * i + 2], s.inverse), __fmul_rn(v[4 * i + 3], s.inverse));
    b.scale = s.code;
    return b;
}

/* To 32 bytes, at a multiple of 16. */
static __device__ __forceinline__ void mxfp8_store_codes(uint8_t *to,
                                                         const mxfp8_codes_of_block &b) {
    const uint32_t(&c)[MXFP8_BLOCK / 4] = b.four;
    reinterpret_cast<uint4 *>(to)[0] = {c[0], c[1], c[2], c[3]};
    reinterpret_cast<uint4 *>(to)[1] = {c[4], c[5], c[6], c[7]};
}
#endif
