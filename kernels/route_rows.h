/* From the tokens' experts to the experts' rows. */
#ifndef REGULON_KERNELS_ROUTE_ROWS_H
#define REGULON_KERNELS_ROUTE_ROWS_H
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif
/* Where each (token, choice) goes when the rows are laid out by expert, then by token; a choice
 * whose id is -1 goes nowhere, and its row_of is not written. Expert e has rows offsets[e] ..
 * ends[e] - 1, and up to offsets[e + 1], a multiple of unit, rows that pad them: offsets[E + 1],
 * ends[E]. row_of[N, A]; row_p[r] of each row, 0 where it pads. scratch: route_scratch(E) bytes
 * (scratch.h). N may be 0. */
void route_rows(int32_t *offsets, int32_t *ends, int32_t *row_of, float *row_p, const int32_t *ids,
                const float *p, void *scratch, int N, int E, int A, int unit, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
