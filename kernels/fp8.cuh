/* Eight bits on a GPU: E4M3, four bits of exponent and three of fraction, up to 448, in blocks that
 * share a scale (src/backend/formats.h). */
#ifndef REGULON_KERNELS_FP8_CUH
#define REGULON_KERNELS_FP8_CUH
#include <cuda_fp16.h>
#include <stdint.h>

/* Largest magnitudes are compared as bits: a NaN is above all, and stays. */
static __device__ __forceinline__ uint32_t magnitude(float x) {
    return __float_as_uint(x) & 0x7fffffffu;
}

/* Of a block: what its elements are multiplied by when they are written, and when they are read.
 * scale = amax / 448, at least 2^-126, 1 where all are zero; elements are x times 1 / scale. */
struct fp8_scale {
    float inverse, scale;
};
static __device__ __forceinline__ fp8_scale fp8_scale_of(uint32_t amax) {
    float scale = __fdiv_rn(__uint_as_float(amax), 448.0f);
    if (scale < 0x1p-126f) scale = 0x1p-126f;
    if (amax == 0) scale = 1;
    return {__frcp_rn(scale), scale};
}

/* Two elements, rounded to nearest even and saturated, the first in the lower half; NaN stays. */
static __device__ __forceinline__ uint32_t fp8_pair(float low, float high) {
#if __CUDA_ARCH__ >= 890
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else /* no such instruction, and no recipe that asks for it */
    (void)low, (void)high;
    return 0;
#endif
}

/* What two codes stand for, exactly. */
static __device__ __forceinline__ void fp8_values(float (&v)[2], uint32_t pair) {
#if __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(pair)));
    const float2 f = __half22float2(*reinterpret_cast<const __half2 *>(&halves));
    v[0] = f.x, v[1] = f.y;
#else
    (void)pair;
    v[0] = v[1] = 0;
#endif
}

static __device__ __forceinline__ uint32_t fp8_four(float a, float b, float c, float d) {
    return fp8_pair(a, b) | fp8_pair(c, d) << 16;
}
#endif
