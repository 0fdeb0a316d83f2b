/* A row of D as it travels in eight bits (precision.fp8_dispatch): the scales of its blocks, FP32,
 * then a code a column, either up to a multiple of 8 bytes. Where D is a multiple of 8 that is no
 * more than D numbers of two bytes. Arithmetic alone. */
#ifndef REGULON_KERNELS_LOW_ROW_H
#define REGULON_KERNELS_LOW_ROW_H
#include <stddef.h>
#ifdef __CUDACC__
#define LOW_ROW_INLINE static inline __host__ __device__
#else
#define LOW_ROW_INLINE static inline
#endif

enum { LOW_ROW_BLOCK = 128 /* columns that share a scale; cut off at the row's end */ };

LOW_ROW_INLINE size_t low_row_scales(int D) {
    size_t blocks = ((size_t)D + LOW_ROW_BLOCK - 1) / LOW_ROW_BLOCK;
    return (blocks * sizeof(float) + 7) / 8 * 8;
}

LOW_ROW_INLINE size_t low_row_bytes(int D) {
    return low_row_scales(D) + ((size_t)D + 7) / 8 * 8;
}
#endif
