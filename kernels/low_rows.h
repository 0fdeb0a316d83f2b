/* Between tokens and the experts' rows, as permute.h, by way of eight bits (low_row.h). What rows
 * become is low_row.h's codes times their scales, in FP32, rounded to the compute type. D a
 * multiple of 8; GPUs of compute capability 8.9 or more. */
#ifndef REGULON_KERNELS_LOW_ROWS_H
#define REGULON_KERNELS_LOW_ROWS_H
#include "low_row.h"
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif
/* copies[copy_of[i, a]], a row in eight bits, = x[i, :], x[N, D]; copy_of -1: none. */
void low_rows_pack(enum real t, void *copies, const void *x, const int32_t *copy_of, int N, int A,
                   int D, cudaStream_t stream);

/* permute_spread of arrivals[N], rows in eight bits */
void low_rows_spread(enum real t, void *rows, const int32_t *base, const void *arrivals,
                     const int32_t *row_of, const int32_t *offsets, const int32_t *ends, int N,
                     int E, int A, int D, cudaStream_t stream);

/* Both at once: of x[N, D], which does not travel. */
void low_rows_round(enum real t, void *rows, const void *x, const int32_t *row_of,
                    const int32_t *offsets, const int32_t *ends, int N, int E, int A, int D,
                    cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
