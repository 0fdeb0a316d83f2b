/* From the tokens' experts to the ranks that hold them. */
#ifndef REGULON_KERNELS_ROUTE_RANKS_H
#define REGULON_KERNELS_ROUTE_RANKS_H
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif
/* Rank r of P holds experts r E / P .. (r + 1) E / P - 1. A token is copied once for each rank that
 * holds one of its experts ids[N, A], ascending; the copies lie by rank, then by token, those of
 * rank r at first[r] .. first[r + 1] - 1, first[P + 1]. Of copy c, ids_there[c, A] has the choices
 * as its rank numbers its experts, -1 where one is elsewhere, and p_there[c, A] their p, else 0.
 * copy_of[N, A]: at the first of a token's choices on a rank its copy for that rank, else -1;
 * place_of[N, A]: where in [copies, A] the choice went. All on the device; scratch: sort_scratch()
 * bytes (scratch.h). N may be 0. */
void route_ranks(int32_t *first, int32_t *copy_of, int32_t *place_of, int32_t *ids_there,
                 float *p_there, const int32_t *ids, const float *p, void *scratch, int N, int E,
                 int A, int P, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
