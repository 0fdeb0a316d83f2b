/* Eight bits in blocks that share a power of two (src/backend/formats.h), by arithmetic in FP32: on
 * any GPU. */
#ifndef REGULON_KERNELS_MXFP8_CUH
#define REGULON_KERNELS_MXFP8_CUH
#include <stdint.h>

/* Of a block: what its elements are multiplied by when they are written, and when they are read. */
struct mxfp8_scale {
    float inverse, scale;
    uint8_t code; /* of the scale in E8M0 */
};

/* amax / 448 up to a power of two, from 2^-127 to 2^127; NaN stays. */
static __device__ __forceinline__ mxfp8_scale mxfp8_scale_of(float amax) {
    const float quotient = __fdiv_rn(amax, 448.0f);
    const uint32_t bits = __float_as_uint(quotient), fraction = bits & 0x7fffff;
    uint32_t code = bits >> 23;
    if (isnan(amax)) return {amax, amax, 0xff};
    code +=
        code == 0 ? fraction > 1u << 22 : fraction != 0; /* below 2^-126 there is one bit less */
    code = min(code, 0xfeu);
    const float value = __uint_as_float(code == 0 ? 1u << 22 : code << 23);
    return {__fdiv_rn(1.0f, value), value, static_cast<uint8_t>(code)};
}

/* To the nearest E4M3 number, to even where there are two, 448 at most; NaN stays. Of fewer than
 * 2^-6 all have the same step, 2^-9: next to 2^14 FP32 has it, too. */
static __device__ __forceinline__ float e4m3(float x) {
    const uint32_t bits = __float_as_uint(x), sign = bits & 0x80000000u;
    uint32_t rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return x;
    if (__uint_as_float(rest) < 0x1p-6f)
        rest = __float_as_uint(__fsub_rn(__fadd_rn(__uint_as_float(rest), 0x1p14f), 0x1p14f));
    else
        rest = (rest + 0x7ffff + (rest >> 20 & 1)) & ~0xfffffu;
    return __uint_as_float(sign | min(rest, __float_as_uint(448.0f)));
}
#endif
