/* The losses that keep the experts evenly used. */
#ifndef REGULON_KERNELS_BALANCE_H
#define REGULON_KERNELS_BALANCE_H
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif
/* The auxiliary losses of a micro-batch. hf 0: aux = sum over layers of E sum_e (c_le / (n A))
 * (P_le / n); hf 1: E sum_e (sum_l c_le / (L n)) (sum_l P_le / (L n)); z = sum_l z_l / n; n =
 * tokens = sum_e c_0e / A, 0 counts as 1. dprobs[L, E] = coef weight d aux / d P; dz[1] = z_coef
 * weight / n. Adds to the step's sums: aux += weight * aux, z_sum += weight * z, entropy_sum[L] +=
 * entropy[L], counts_sum[L, E] += own_counts[L, E]. counts[L, E]: those of all ranks where the
 * losses are taken over the world, else own_counts. */
struct balance_rule {
    int L, E, A, hf;
    double coef, z_coef, weight;
};
void balance_losses(float *dprobs, float *dz, double *aux, double *z_sum, double *entropy_sum,
                    uint32_t *counts_sum, const uint32_t *counts, const uint32_t *own_counts,
                    const double *P, const double *entropy, const double *z,
                    struct balance_rule rule, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
