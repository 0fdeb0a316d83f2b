/* BF16 matrices into MXFP8 as products take it: E4M3 in blocks of 32 that share a power of two
 * (src/backend/formats.h, FORMAT_E8M0), with the scales where mxfp8_scales.h has them. Compute
 * capability 8.9 or later. */
#ifndef REGULON_KERNELS_MXFP8_PACK_H
#define REGULON_KERNELS_MXFP8_PACK_H
#include "mxfp8_scales.h"
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Matrices of the same width, one behind the other. Of experts' rows: matrix e has rows offsets[e]
 * .. offsets[e + 1] - 1, on the device, multiples of 128, and `rows` is offsets[n]. Others (offsets
 * NULL): each has `rows`, a multiple of 32 where there are several. */
struct mxfp8_set {
    const int32_t *offsets;
    int n, rows;
};

/* x[., cols], BF16, cols a multiple of 32, rounded in either direction from the values themselves;
 * either result may be absent (codes NULL).
 *
 * by_row: codes[., cols], rounded along rows; matrix e from its first row on. by_col: transposed,
 * codes[cols, rows of e up to whole blocks, zeros at the end] of each matrix, rounded along these;
 * matrix e from cols times its first row on. The scales of matrix e begin at those of e whole
 * matrices, or of offsets[e] rows. */
void mxfp8_pack(struct mxfp8_matrix by_row, struct mxfp8_matrix by_col, const void *x,
                struct mxfp8_set set, int cols, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
