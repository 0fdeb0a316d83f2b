/* Where the scales of an MXFP8 matrix lie for cuBLASLt (VEC32_UE8M0) and for tcgen05: one byte,
 * E8M0, for 32 values next to each other. Plain C, so that the definition that the tests know is
 * the one that the kernels run.
 *
 * The scales of x[rows, cols], as a matrix [rows, cols / 32], are cut into tiles of 128 x 4, whole
 * ones also at its ends, which follow one another by row. A tile has 512 bytes: the scale of its
 * row r and column c is byte 16 (r % 32) + 4 (r / 32) + c, so that rows 32 apart lie together. What
 * belongs to no row or column is 0. (cuBLAS, "1D block scaling factors layout".) */
#ifndef REGULON_KERNELS_MXFP8_SCALES_H
#define REGULON_KERNELS_MXFP8_SCALES_H
#include "grouped_sizes.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define MXFP8_INLINE static inline __host__ __device__
#else
#define MXFP8_INLINE static inline
#endif

enum {
    MXFP8_TILE_ROWS = 128,
    MXFP8_TILE_BLOCKS = 4,                             /* columns of scales */
    MXFP8_TILE_COLS = MXFP8_TILE_BLOCKS * MXFP8_BLOCK, /* of values */
    MXFP8_TILE_BYTES = MXFP8_TILE_ROWS * MXFP8_TILE_BLOCKS
};

/* A matrix in MXFP8 on the device: codes[rows, cols], E4M3, cols a multiple of 32, dense; scales as
 * above. What is multiplied is summed along the columns. */
struct mxfp8_matrix {
    uint8_t *codes, *scales;
};

/* Tiles along n rows, or along n columns of values. */
MXFP8_INLINE size_t mxfp8_tiles(size_t n) {
    return (n + MXFP8_TILE_ROWS - 1) / MXFP8_TILE_ROWS;
}

/* Bytes of the scales of x[rows, cols]. */
MXFP8_INLINE size_t mxfp8_scale_bytes(size_t rows, size_t cols) {
    return mxfp8_tiles(rows) * mxfp8_tiles(cols) * MXFP8_TILE_BYTES;
}

/* The place of the scale of row `row` and of the values 32 block .. 32 block + 31 of it. */
MXFP8_INLINE size_t mxfp8_scale_at(size_t row, size_t block, size_t cols) {
    const size_t tile = row / MXFP8_TILE_ROWS * mxfp8_tiles(cols) + block / MXFP8_TILE_BLOCKS;
    const size_t r = row % MXFP8_TILE_ROWS, c = block % MXFP8_TILE_BLOCKS;
    return tile * MXFP8_TILE_BYTES + r % 32 * 16 + r / 32 * 4 + c;
}

/* n, up to whole blocks. */
MXFP8_INLINE size_t mxfp8_whole(size_t n) {
    return (n + MXFP8_BLOCK - 1) / MXFP8_BLOCK * MXFP8_BLOCK;
}

/* Several matrices that lie one behind the other, each with scales of its own: bytes of the codes
 * and of the scales of n [rows, cols], as they are or transposed, [cols, rows], where rows end with
 * a whole block. */
MXFP8_INLINE size_t mxfp8_codes(size_t n, size_t rows, size_t cols) {
    return n * mxfp8_whole(rows) * cols;
}

MXFP8_INLINE size_t mxfp8_scales(size_t n, size_t rows, size_t cols) {
    return n * mxfp8_scale_bytes(rows, cols);
}
#endif
