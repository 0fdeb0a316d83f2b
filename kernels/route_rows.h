/* From the tokens' experts to the experts' rows. */
#ifndef REGULON_KERNELS_ROUTE_ROWS_H
#define REGULON_KERNELS_ROUTE_ROWS_H
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif
/* Where each (token, choice) goes when the rows are laid out by expert, then by token: offsets[E +
 * 1]; row_of[N, A]; row_token[N A] and row_p[N A] of each row. scratch: route_scratch(E)
 * bytes (scratch.h). N may be 0. */
void route_rows(int32_t *offsets, int32_t *row_of, int32_t *row_token, float *row_p,
                const int32_t *ids, const float *p, void *scratch, int N, int E, int A,
                cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
