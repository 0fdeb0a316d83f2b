/* MXFP8 as BF16 holds it: values rounded to E4M3 in blocks of 32 that share a power of two, the
 * least with which the largest magnitude is at most 448 (src/backend/formats.h, FORMAT_E8M0). Four
 * places and a power of two are a BF16 number, unless below 2^-133 or above 2^127. On any GPU. */
#ifndef REGULON_KERNELS_MXFP8_H
#define REGULON_KERNELS_MXFP8_H
#include "grouped_sizes.h"
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Blocks of MXFP8_BLOCK are of a row, or rows of a column. */
enum mxfp8_blocks { MXFP8_ALONG_ROWS, MXFP8_DOWN_COLUMNS };

/* Rows 0 to last[0] - 1 (last NULL: to rows - 1), in x from row from[0] on and in the result from
 * row to[0] on (NULL: 0); last, from and to on the device, last[0] <= rows. Others are neither read
 * nor written. The last block of a column ends with the rows. */
struct mxfp8_rows {
    int rows;
    const int32_t *last, *from, *to;
};

/* out[rows, cols], BF16, is x[rows, cols], BF16, rounded; it may be x. cols is a multiple of 32. */
void mxfp8_round(void *out, const void *x, enum mxfp8_blocks blocks, struct mxfp8_rows r, int cols,
                 cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
