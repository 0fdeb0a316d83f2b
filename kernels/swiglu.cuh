/* The activation of one element, and its gradient: the same bits wherever it is computed. */
#ifndef REGULON_KERNELS_SWIGLU_CUH
#define REGULON_KERNELS_SWIGLU_CUH
#include "mma.cuh"

/* 1 / (1 + e^-x), relative error 2^-21 */
static __device__ __forceinline__ float sigmoid(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1 + exp2_fast(-1.44269504f * x)));
    return y;
}

/* h = p silu(gate) up */
static __device__ __forceinline__ float swiglu(float gate, float up, float p) {
    return p * up * (gate * sigmoid(gate));
}

/* From dh, with s = sigmoid(gate): dgate = p dh up s (1 + gate (1 - s)), dup = p dh gate s, and
 * dp = dh gate s up, of this element. h as above. */
struct swiglu_gradient {
    float dgate, dup, dp, h;
};
static __device__ __forceinline__ swiglu_gradient swiglu_back(float gate, float up, float p,
                                                              float dh) {
    float s = sigmoid(gate), silu = gate * s, pd = p * dh;
    return {pd * (s * up) * (1 + gate - silu), pd * silu, dh * (silu * up), p * up * silu};
}
#endif
