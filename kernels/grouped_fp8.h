/* The products of all experts of a layer at once, on Hopper (sm_90a), from E4M3 in blocks of 128
 * that share a scale, with sums in FP32. As grouped_gemm.h but for the operands; rows of an expert
 * are multiples of GROUPED_FP8_ROWS, widths of GROUPED_FP8_UNIT. Every operand lies with what is
 * summed over next to each other, so some are needed transposed, too: quantise.h makes them. */
#ifndef REGULON_KERNELS_GROUPED_FP8_H
#define REGULON_KERNELS_GROUPED_FP8_H
#include "grouped_gemm.h"
#ifdef __cplusplus
extern "C" {
#endif

/* z[rows, 2F] = x[rows, D] up[e]^T, up[E, 2F, D], gate first; h[rows, F] = p silu(gate) up, in
 * eight bits, one scale for 128 of a row. Scales as quantise.h has them for rows and weights. z in
 * eight bits is what quantise_rows makes of z in BF16, and h the same in either case. */
void grouped_fp8_up(struct grouped *g, struct fp8_z z, struct fp8_matrix h, struct fp8_matrix x,
                    struct fp8_matrix up, const float *p, struct grouped_rows r, int D, int F,
                    cudaStream_t stream);

/* y[rows, N], BF16, = x[rows, K] w[e]^T, w[E, N, K] */
void grouped_fp8_forward(struct grouped *g, void *y, struct fp8_matrix x, struct fp8_matrix w,
                         struct grouped_rows r, int N, int K, cudaStream_t stream);

/* The same with one expert (r.E 1, r.offsets NULL); of y only `rows` rows are there. */
void grouped_fp8_dense(struct grouped *g, void *y, struct fp8_matrix x, struct fp8_matrix w,
                       struct grouped_rows r, int rows, int N, int K, cudaStream_t stream);

/* dw as grouped_weights has it, from dz^T[N, rows] with a scale for 128 rows of a column and
 * x^T[K, rows] with one for 128 rows and 128 columns. */
void grouped_fp8_weights(struct grouped *g, struct gradient dw, struct fp8_matrix dz,
                         struct fp8_matrix x, struct grouped_rows r, int N, int K,
                         cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
