/* AdamW, and what is decided before it. */
#include "config.h"
#include "backend/cuda.h"
#include "optimizer.h"

static void add(struct backend *be, float *sum, const float *x, size_t n) {
    add_floats(sum, x, n, cuda_state(be)->stream);
}

static void squares(struct backend *be, double *sum, const float *x, size_t n) {
    struct cuda_state *s = cuda_state(be);
    sum_squares(sum, x, n, s->scratch, s->stream);
}

static void decide(struct backend *be, float *factor, const double *values, int n,
                   const double *norm2, double max_norm) {
    clip_decide(factor, values, n, norm2, max_norm, cuda_state(be)->stream);
}

static void adamw(struct backend *be, float *master, real_t *weight, float *m, float *v,
                  const float *grad, const float *factor, size_t n, struct adamw a) {
    struct cuda_state *s = cuda_state(be);
    adamw_update(s->real, master, weight, m, v, grad, factor, n,
                 (struct adamw_rule){.lr = a.lr,
                                     .beta1 = a.beta1,
                                     .beta2 = a.beta2,
                                     .eps = a.eps,
                                     .decay = a.decay,
                                     .correction1 = a.correction1,
                                     .correction2 = a.correction2},
                 s->stream);
}

void cuda_fill_optimizer(struct backend *be) {
    be->add = add;
    be->sum_squares = squares;
    be->decide = decide;
    be->adamw = adamw;
}
