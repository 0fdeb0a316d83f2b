/* Runs of W elements to and from FP32 registers; W = 1 is for addresses that fit no wider access.
 */
#ifndef REGULON_KERNELS_ACCESS_CUH
#define REGULON_KERNELS_ACCESS_CUH
#include "vector.cuh"

template <class T, int W>
static __device__ __forceinline__ void read_run(float (&f)[W], const T *p) {
    if constexpr (W == 1)
        f[0] = to_float(*p);
    else
        unpack(f, load<W>(p));
}

template <class T, int W>
static __device__ __forceinline__ void write_run(T *p, const float (&f)[W]) {
    if constexpr (W == 1)
        *p = from_float<T>(f[0]);
    else
        store(p, pack<T>(f));
}
#endif
