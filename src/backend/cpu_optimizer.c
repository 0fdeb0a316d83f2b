/* AdamW, and what is decided before it. */
#include "config.h"
#include "backend/cpu.h"
#include <math.h>

static void adamw(struct backend *be, float *master, real_t *weight, float *m, float *v,
                  const float *grad, const float *factor, size_t n, struct adamw a) {
    (void)be;
    if (factor[0] < 0) return;
    float scale = factor[0], keep = 1 - a.lr * a.decay, step = a.lr / a.correction1,
          root = 1 / sqrtf(a.correction2);
    float *w = weight ? weight : master;
#pragma omp parallel for simd
    for (size_t i = 0; i < n; i++) {
        float g = scale * grad[i];
        m[i] = a.beta1 * m[i] + (1 - a.beta1) * g;
        v[i] = a.beta2 * v[i] + (1 - a.beta2) * g * g;
        w[i] = master[i] = master[i] * keep - step * m[i] / (sqrtf(v[i]) * root + a.eps);
    }
}

static void add(struct backend *be, float *sum, const float *x, size_t n) {
    (void)be;
#pragma omp parallel for simd
    for (size_t i = 0; i < n; i++) sum[i] += x[i];
}

/* Blocks of fixed size, summed in order: the result does not depend on the number of threads. */
static void sum_squares(struct backend *be, double *total, const float *x, size_t n) {
    (void)be;
    enum { BLOCK = 4096, GROUP = 512 };
    double sum = 0, part[GROUP];
    for (size_t start = 0; start < n; start += (size_t)BLOCK * GROUP) {
        size_t rest = n - start, blocks = (rest + BLOCK - 1) / BLOCK;
        if (blocks > GROUP) blocks = GROUP;
#pragma omp parallel for
        for (size_t b = 0; b < blocks; b++) {
            size_t first = start + b * BLOCK, last = first + BLOCK < n ? first + BLOCK : n;
            double s = 0;
#pragma omp simd reduction(+ : s)
            for (size_t i = first; i < last; i++) s += (double)x[i] * (double)x[i];
            part[b] = s;
        }
        for (size_t b = 0; b < blocks; b++) sum += part[b];
    }
    *total += sum;
}

static void decide(struct backend *be, float *factor, const double *values, int n,
                   const double *norm2, double max_norm) {
    (void)be;
    int finite = isfinite(*norm2);
    for (int i = 0; i < n; i++) finite = finite && isfinite(values[i]);
    double scale = max_norm > 0 ? max_norm / (sqrt(*norm2) + 1e-6) : 1;
    *factor = !finite ? -1 : scale < 1 ? (float)scale : 1;
}

void cpu_fill_optimizer(struct backend *be) {
    be->adamw = adamw;
    be->add = add;
    be->sum_squares = sum_squares;
    be->decide = decide;
}
