/* The activation of one element, and its gradient: the same bits wherever it is computed. */
#ifndef REGULON_KERNELS_SWIGLU_CUH
#define REGULON_KERNELS_SWIGLU_CUH

static __device__ __forceinline__ float sigmoid(float x) {
    return __fdividef(1, 1 + __expf(-x));
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
    return {pd * up * s * (1 + gate * (1 - s)), pd * silu, dh * (silu * up), p * up * silu};
}
#endif
