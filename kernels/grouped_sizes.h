/* Numbers of the grouped products (grouped_gemm.h) that are known where there is no CUDA, too. */
#ifndef REGULON_KERNELS_GROUPED_SIZES_H
#define REGULON_KERNELS_GROUPED_SIZES_H
#include <stddef.h>

enum {
    GROUPED_ROWS = 64,  /* an expert's rows begin at multiples of this */
    GROUPED_UNIT = 64,  /* what widths must be multiples of */
    GROUPED_COLS = 256, /* of a tile */
    GROUPED_EXPERTS = 256
};

/* Bytes of scratch of grouped_down_backward. */
static inline size_t grouped_parts(size_t rows, int F) {
    return rows * (size_t)((F + GROUPED_COLS - 1) / GROUPED_COLS) * sizeof(float);
}
#endif
