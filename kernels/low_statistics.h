/* What becomes of matrices in eight bits (quantise.h), in numbers: a pass over memory for each,
 * which writes nothing but N_LOW_SUMS doubles. */
#ifndef REGULON_KERNELS_LOW_STATISTICS_H
#define REGULON_KERNELS_LOW_STATISTICS_H
#include "grouped_gemm.h"
#include "low_sums.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Each adds to sums[N_LOW_SUMS]. scratch: low_statistics_scratch() bytes. Columns are multiples of
 * 128. */

/* x[rows, cols], BF16, in blocks of 128 columns of a row. */
void low_statistics_dense(double *sums, const void *x, int rows, int cols, void *scratch,
                          cudaStream_t stream);

/* The experts' rows x[., cols] at r.x. */
void low_statistics_rows(double *sums, const void *x, struct grouped_rows r, int cols,
                         void *scratch, cudaStream_t stream);

/* w[rows, cols], BF16, in blocks of 128 x 128; rows, those of all experts, a multiple of 128. */
void low_statistics_weights(double *sums, const void *w, int rows, int cols, void *scratch,
                            cudaStream_t stream);

/* h[., F], FP32, as swiglu.h makes it of z[., 2F], BF16, at r.z. */
void low_statistics_h(double *sums, const void *z, const float *p, struct grouped_rows r, int F,
                      void *scratch, cudaStream_t stream);

/* dz[., 2F], BF16, likewise, from dh[rows, F], BF16. */
void low_statistics_dz(double *sums, const void *dh, const void *z, const float *p,
                       struct grouped_rows r, int F, void *scratch, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
