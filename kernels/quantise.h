/* Matrices into eight bits, and the activation's gradient on the way: passes over memory that write
 * what the products of grouped_fp8.h need, along rows and transposed. */
#ifndef REGULON_KERNELS_QUANTISE_H
#define REGULON_KERNELS_QUANTISE_H
#include "grouped_gemm.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The experts' rows x[rows, cols], BF16, at r.x, in E4M3, and transposed; either result may be
 * absent (codes NULL). r.rows and r.offsets[..] are multiples of 128; rows behind the last expert's
 * are neither read nor written. cols is a multiple of 128.
 *
 * by_row: codes[rows, cols], scales[cols / 128, rows], each of 128 columns of a row. by_col:
 * codes[cols, rows], scales[rows / 128, cols], each of 128 rows of a column; with `square`
 * scales[rows / 128, cols / 128], each of 128 rows of 128 columns. */
void quantise_rows(struct fp8_matrix by_row, struct fp8_matrix by_col, int square, const void *x,
                   struct grouped_rows r, int cols, cudaStream_t stream);

/* The same of x[N, cols], as if zeros followed up to `rows`, the next multiple of 128. */
void quantise_dense(struct fp8_matrix by_row, struct fp8_matrix by_col, int square, const void *x,
                    int N, int cols, cudaStream_t stream);

/* w[E, N, K], BF16, in blocks of 128 x 128: codes[E, N, K], scales[E, N / 128, K / 128], and
 * transposed, codes[E, K, N], scales[E, K / 128, N / 128]; either may be absent. */
void quantise_weights(struct fp8_matrix as_is, struct fp8_matrix transposed, const void *w, int E,
                      int N, int K, cudaStream_t stream);

/* From dh[rows, F] and z[rows, 2F] at r.z what swiglu.h says, in eight bits: dz by row, and by
 * column with a scale for 128 rows of it; h by column, square; dp[rows]. parts: fp8_parts(rows, F)
 * bytes of scratch. Rows as above. */
void quantise_swiglu(struct fp8_matrix dz_by_row, struct fp8_matrix dz_by_col,
                     struct fp8_matrix h_by_col, float *dp, void *parts, const void *dh,
                     struct fp8_z z, const float *p, struct grouped_rows r, int F,
                     cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
