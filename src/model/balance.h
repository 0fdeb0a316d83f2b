/* The selection bias that keeps the experts evenly used (Wang et al. 2024). */
#ifndef REGULON_MODEL_BALANCE_H
#define REGULON_MODEL_BALANCE_H
#include <stdint.h>

/* One step of the selection bias: bias[L, E] += rate * sign(mean - count), counts[L, E] summed over
 * the step and all ranks. Host arrays. */
void balance_move_bias(float *bias, const uint32_t *counts, double rate, int L, int E);
#endif
