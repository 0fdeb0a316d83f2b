/* The learning rate of a step. */
#ifndef REGULON_OPTIM_SCHEDULE_H
#define REGULON_OPTIM_SCHEDULE_H
#include "config/config.h"

/* Rate of the update that completes step `step` (1 is the first): linear warm-up to lr at
 * warmup_steps, so that the first update is not at rate 0; then constant, or down to min_lr_ratio *
 * lr at decay_steps (default num_train_steps) along a line or half a cosine (Loshchilov and Hutter
 * 2017, eq. 5, one cycle). */
double schedule_rate(const struct config *c, int64_t step);
#endif
