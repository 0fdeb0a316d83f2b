/* What becomes of matrices in eight bits, in numbers: a pass over memory for each, which writes
 * nothing but N_LOW_SUMS doubles. Any GPU. */
#ifndef REGULON_KERNELS_LOW_STATISTICS_H
#define REGULON_KERNELS_LOW_STATISTICS_H
#include "grouped_gemm.h"
#include "low_sums.h"
#ifdef __cplusplus
extern "C" {
#endif

/* What shares a scale: 128 columns of a row, 128 x 128 (quantise.h), or 32 columns of a row
 * (mxfp8.h). Columns are multiples of as many, rows of squares of 128. */
enum low_blocks { LOW_BLOCK_LINE, LOW_BLOCK_SQUARE, LOW_BLOCK_MX };

/* Each adds to sums[N_LOW_SUMS]. scratch: low_statistics_scratch() bytes. */

/* x[rows, cols], BF16, from row base[0] on (NULL: 0); there are last[0] rows (NULL: `rows`, which
 * is the most). base and last on the device. */
void low_statistics(double *sums, enum low_blocks blocks, const void *x, const int32_t *base,
                    const int32_t *last, int rows, int cols, void *scratch, cudaStream_t stream);

/* h[., F], FP32, as swiglu.h makes it of z[., 2F] at r.z, in LOW_BLOCK_LINE. */
void low_statistics_h(double *sums, struct fp8_z z, const float *p, struct grouped_rows r, int F,
                      void *scratch, cudaStream_t stream);

/* dz[., 2F], BF16, likewise, from dh[rows, F], BF16. */
void low_statistics_dz(double *sums, const void *dh, struct fp8_z z, const float *p,
                       struct grouped_rows r, int F, void *scratch, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
