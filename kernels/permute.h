/* Between tokens and the experts' rows. */
#ifndef REGULON_KERNELS_PERMUTE_H
#define REGULON_KERNELS_PERMUTE_H
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif
/* rows[row_of[i, a], :] = x[i, :], x[N, D], and zeros in the rows ends[e] .. offsets[e + 1] - 1
 * that pad an expert's, of whom there may be none; row_of -1: none. Rows count from base[0], on the
 * device; NULL: from 0. D a multiple of 8 */
void permute_spread(enum real t, void *rows, const int32_t *base, const void *x,
                    const int32_t *row_of, const int32_t *offsets, const int32_t *ends, int N,
                    int E, int A, int D, cudaStream_t stream);

/* out[N, D] = sum over a of rows[row_of[i, a], :] in the order of a, in FP32; row_of -1: none. */
void permute_gather(enum real t, void *out, const void *rows, const int32_t *row_of, int N, int A,
                    int D, cudaStream_t stream);

/* out[N, A] = values[row_of[i, a]], 0 where row_of is -1 */
void permute_gather_values(float *out, const float *values, const int32_t *row_of, int N, int A,
                           cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
