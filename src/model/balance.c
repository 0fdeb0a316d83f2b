/* Per layer l with counts c_le, probability sums P_le, N tokens:
 *   layer: aux = sum_l E sum_e (c_le / (N A)) (P_le / N)
 *   hf:    aux = E sum_e (sum_l c_le / (L N)) (sum_l P_le / (L N))
 *   z = sum_l (sum of lse^2) / N
 * c and N are the micro-batch's own, or, with balance_over world, those of all ranks' micro-batches
 * of this micro-step; P and the sum of lse^2 are this rank's share of it. */
#include "config.h"
#include "model/balance.h"

struct balance balance_losses(struct model *m, double weight, float *dprobs) {
    size_t L = (size_t)m->s.L, E = (size_t)m->s.E, n = L * E;
    int hf = m->config->router.aux_loss == AUX_HF,
        world = m->config->router.balance_over == BALANCE_WORLD;
    double coef = m->config->model.router_aux_loss_coef, z_coef = m->config->router.z_loss_coef;
    uint32_t *counts = m->counts; /* [L, E] and one more for N */
    counts[n] = (uint32_t)m->N;
    if (world) m->be->sum_uint32(m->be, m->be->grid->world, counts, n + 1);
    double N = counts[n] ? counts[n] : 1;
    struct balance b = {.dprobs = dprobs};
    for (size_t l = 0; l < L; l++)
        for (size_t e = 0; e < E; e++) {
            double count = 0;
            if (hf)
                for (size_t k = 0; k < L; k++) count += counts[k * E + e];
            else
                count = counts[l * E + e];
            /* aux is linear in P: slope = d aux / d P_le */
            double slope = hf ? (double)E * count / ((double)L * N * (double)L * N)
                              : (double)E * count / (N * m->s.A * N);
            b.aux += slope * m->P[l * E + e];
            dprobs[l * E + e] = (float)(coef * slope * weight);
        }
    for (size_t l = 0; l < L; l++) b.z += m->z[l] / N;
    b.dz = (float)(z_coef * weight / N);
    return b;
}

void balance_move_bias(float *bias, const uint32_t *counts, double rate, int L, int E) {
    for (int l = 0; l < L; l++) {
        uint64_t sum = 0;
        for (int e = 0; e < E; e++) sum += counts[l * E + e];
        for (int e = 0; e < E; e++) {
            uint64_t count = (uint64_t)counts[l * E + e] * (uint64_t)E;
            bias[l * E + e] += (float)(count < sum ? rate : count > sum ? -rate : 0);
        }
    }
}
