/* What the kernels share: runs of elements that travel in 16-byte accesses, sums over warps and
 * blocks, the choice of the element type. */
#ifndef REGULON_KERNELS_VECTOR_CUH
#define REGULON_KERNELS_VECTOR_CUH
#include "real.h"
#include "check.h"
#include <cassert>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

using bf16 = __nv_bfloat16;

template <class T> static inline __host__ __device__ T ceil_div(T n, int by) {
    return (n + static_cast<T>(by) - 1) / static_cast<T>(by);
}

static inline bool aligned16(const void *p) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

/* f(T()) with the element type: for_type(t, [&](auto zero) { using T = decltype(zero); ... }); */
template <class F> static inline void for_type(enum real t, F f) {
    if (t == REAL_BF16)
        f(bf16());
    else
        f(float());
}

/* W consecutive elements as they lie in memory, so that rows can be held in registers at their own
 * width: 8 BF16 are one 16-byte access, 4 are one of 8 bytes, 8 FP32 two of 16. The address is a
 * multiple of the access. */
template <class T, int W> struct vec;

template <> struct vec<bf16, 4> { uint2 bits; };

template <> struct vec<bf16, 8> { uint4 bits; };

template <> struct vec<float, 4> { float4 low; };

template <> struct vec<float, 8> { float4 low, high; };

template <int W> static __device__ __forceinline__ vec<bf16, W> load(const bf16 *p) {
    return {*reinterpret_cast<const decltype(vec<bf16, W>::bits) *>(p)};
}

template <int W> static __device__ __forceinline__ vec<float, W> load(const float *p) {
    const float4 *q = reinterpret_cast<const float4 *>(p);
    if constexpr (W == 4)
        return {q[0]};
    else
        return {q[0], q[1]};
}

template <int W> static __device__ __forceinline__ void store(bf16 *p, vec<bf16, W> v) {
    *reinterpret_cast<decltype(v.bits) *>(p) = v.bits;
}

template <int W> static __device__ __forceinline__ void store(float *p, vec<float, W> v) {
    float4 *q = reinterpret_cast<float4 *>(p);
    q[0] = v.low;
    if constexpr (W == 8) q[1] = v.high;
}

/* A BF16 is the upper half of the FP32 of the same value. */
static __device__ __forceinline__ void unpack_pair(float *f, unsigned bits) {
    f[0] = __uint_as_float(bits << 16);
    f[1] = __uint_as_float(bits & 0xffff0000u);
}

static __device__ __forceinline__ void unpack(float (&f)[4], vec<bf16, 4> v) {
    unpack_pair(f, v.bits.x), unpack_pair(f + 2, v.bits.y);
}

static __device__ __forceinline__ void unpack(float (&f)[8], vec<bf16, 8> v) {
    unpack_pair(f, v.bits.x), unpack_pair(f + 2, v.bits.y);
    unpack_pair(f + 4, v.bits.z), unpack_pair(f + 6, v.bits.w);
}

static __device__ __forceinline__ void unpack(float (&f)[4], vec<float, 4> v) {
    f[0] = v.low.x, f[1] = v.low.y, f[2] = v.low.z, f[3] = v.low.w;
}

static __device__ __forceinline__ void unpack(float (&f)[8], vec<float, 8> v) {
    f[0] = v.low.x, f[1] = v.low.y, f[2] = v.low.z, f[3] = v.low.w;
    f[4] = v.high.x, f[5] = v.high.y, f[6] = v.high.z, f[7] = v.high.w;
}

/* Two floats rounded to nearest even, the first in the lower half. */
static __device__ __forceinline__ unsigned pack_pair(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

template <class T, int W> static __device__ __forceinline__ vec<T, W> pack(const float (&f)[W]) {
    if constexpr (sizeof(T) == 2 && W == 4)
        return {{pack_pair(f[0], f[1]), pack_pair(f[2], f[3])}};
    else if constexpr (sizeof(T) == 2)
        return {{pack_pair(f[0], f[1]), pack_pair(f[2], f[3]), pack_pair(f[4], f[5]),
                 pack_pair(f[6], f[7])}};
    else if constexpr (W == 4)
        return {{f[0], f[1], f[2], f[3]}};
    else
        return {{f[0], f[1], f[2], f[3]}, {f[4], f[5], f[6], f[7]}};
}

static __device__ __forceinline__ float to_float(float x) {
    return x;
}

static __device__ __forceinline__ float to_float(bf16 x) {
    return __bfloat162float(x);
}

template <class T> static __device__ __forceinline__ T from_float(float x) {
    if constexpr (sizeof(T) == 2)
        return __float2bfloat16_rn(x);
    else
        return x;
}

/* All lanes get the sum, or the largest, of `lanes` neighbours (a power of two): the same bits in
 * each, since a + b is b + a. NaN: the sum is, the largest ignores it. */
static __device__ __forceinline__ float warp_sum(float x, int lanes = 32) {
    for (int step = lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}

static __device__ __forceinline__ float warp_max(float x, int lanes = 32) {
    for (int step = lanes / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
    return x;
}

/* One value of each warp, in every warp's first lanes; other lanes get it again. Twice through the
 * barrier, so that a block may call it any number of times. */
template <int WARPS> static __device__ __forceinline__ float exchange_warps(float x) {
    static_assert(WARPS >= 1 && WARPS <= 32 && (WARPS & (WARPS - 1)) == 0, "a power of two");
    __shared__ float of_warp[WARPS];
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    return of_warp[threadIdx.x % WARPS];
}

/* All threads of a one-dimensional block of THREADS, a power of two, get the sum or the largest. */
template <int THREADS> static __device__ __forceinline__ float block_sum(float x) {
    x = warp_sum(x);
    if constexpr (THREADS > 32) x = warp_sum(exchange_warps<THREADS / 32>(x), THREADS / 32);
    return x;
}

template <int THREADS> static __device__ __forceinline__ float block_max(float x) {
    x = warp_max(x);
    if constexpr (THREADS > 32) x = warp_max(exchange_warps<THREADS / 32>(x), THREADS / 32);
    return x;
}
#endif
