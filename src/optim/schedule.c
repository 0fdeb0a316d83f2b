#include "config.h"
#include "optim/schedule.h"
#include <math.h>

double schedule_rate(const struct config *c, int64_t step) {
    int64_t warm = c->scheduler.warmup_steps, end = c->scheduler.decay_steps;
    double lr = c->optimizer.lr, least = c->scheduler.min_lr_ratio;
    if (end == 0) end = c->num_train_steps;
    if (step < warm) return lr * (double)step / (double)warm;
    if (c->scheduler.kind == SCHEDULE_CONSTANT || step <= warm) return lr;
    double done = step >= end ? 1 : (double)(step - warm) / (double)(end - warm);
    double left = c->scheduler.kind == SCHEDULE_LINEAR
                      ? 1 - done
                      : 0.5 * (1 + cos(3.14159265358979323846 * done));
    return lr * (least + (1 - least) * left);
}
