/* Numbers of the grouped products (grouped_gemm.h) that are known where there is no CUDA, too. */
#ifndef REGULON_KERNELS_GROUPED_SIZES_H
#define REGULON_KERNELS_GROUPED_SIZES_H
#include <stddef.h>
#include <stdint.h>

enum {
    GROUPED_ROWS = 64,  /* an expert's rows begin at multiples of this */
    GROUPED_UNIT = 64,  /* what widths must be multiples of */
    GROUPED_COLS = 256, /* of a tile */
    GROUPED_LINES = 16, /* rows of a result that leave together */
    GROUPED_EXPERTS = 256,
    GROUPED_FP8_ROWS = 128, /* the same in eight bits */
    GROUPED_FP8_UNIT = 128,
    MXFP8_BLOCK = 32 /* values that share a scale in MXFP8 */
};

/* Bytes of scratch of grouped_down_backward. */
static inline size_t grouped_parts(size_t rows, int F) {
    return rows * (size_t)((F + GROUPED_COLS - 1) / GROUPED_COLS) * sizeof(float);
}

/* A matrix in eight bits, E4M3, on the device, and the scales of its blocks. */
struct fp8_matrix {
    uint8_t *codes;
    float *scales;
};

/* z of the experts' rows, [rows, 2F]: BF16, or (bf16 NULL) by row in eight bits. */
struct fp8_z {
    void *bf16;
    struct fp8_matrix low;
};

/* Bytes of scratch of quantise_swiglu. */
static inline size_t fp8_parts(size_t rows, int F) {
    return rows * (size_t)(F / GROUPED_FP8_UNIT) * sizeof(float);
}
#endif
