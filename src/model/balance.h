/* The losses that keep the experts evenly used, from the routing of a micro-batch: auxiliary loss
 * (Shazeer et al. 2017; Fedus et al. 2022, eq. 4) and z-loss (Zoph et al. 2022, eq. 5); and the
 * selection bias (Wang et al. 2024). */
#ifndef REGULON_MODEL_BALANCE_H
#define REGULON_MODEL_BALANCE_H
#include "model/model.h"

/* The losses of one micro-batch without their coefficients, and what the backward pass needs. */
struct balance {
    double aux, z;
    float *dprobs; /* [L, E] gradient of coef * aux with respect to every token's probs */
    float dz;      /* gradient of coef * z with respect to a token's lse^2, halved: see
                      backend->route_backward */
};

/* Collective over world when router.balance_over is world, else local. `weight` scales the
 * gradients: see model_backward. `dprobs` room: [L, E], the caller's. */
struct balance balance_losses(struct model *m, double weight, float *dprobs);

/* One step of the selection bias: bias[L, E] += rate * sign(mean - count), counts[L, E] summed over
 * the step and all ranks. Host arrays. */
void balance_move_bias(float *bias, const uint32_t *counts, double rate, int L, int E);
#endif
