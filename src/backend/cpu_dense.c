/* Embedding, RMSNorm, products. */
#include "config.h"
#include "backend/cpu.h"
#include <math.h>
#include <string.h>

static void embed(struct backend *be, real_t *xv, const real_t *table, const int32_t *tokens, int N,
                  int D) {
    (void)be;
    float *x = xv;
    const float *t = table;
    for (int i = 0; i < N; i++)
        memcpy(x + (size_t)i * (size_t)D, t + (size_t)tokens[i] * (size_t)D, (size_t)D * sizeof *x);
}

static void embed_backward(struct backend *be, float *dtable, const real_t *dxv,
                           const int32_t *tokens, int N, int D, int V) {
    (void)be;
    (void)V;
    const float *dx = dxv;
    for (int i = 0; i < N; i++) {
        float *row = dtable + (size_t)tokens[i] * (size_t)D;
        const float *d = dx + (size_t)i * (size_t)D;
        for (int j = 0; j < D; j++) row[j] += d[j];
    }
}

static void add_norm(struct backend *be, real_t *sumv, real_t *yv, float *rstd, const real_t *xv,
                     const real_t *deltav, const real_t *wv, float eps, int N, int D) {
    (void)be;
    const float *w = wv;
#pragma omp parallel for if (cpu_worth((size_t)N, (size_t)D))
    for (int i = 0; i < N; i++) {
        size_t at = (size_t)i * (size_t)D;
        float *sum = (float *)sumv + at, *y = (float *)yv + at;
        const float *x = (const float *)xv + at,
                    *delta = deltav ? (const float *)deltav + at : NULL;
        float squares = 0;
        if (delta)
            for (int j = 0; j < D; j++) sum[j] = x[j] + delta[j];
        else if (sum != x)
            memcpy(sum, x, (size_t)D * sizeof *sum);
#pragma omp simd reduction(+ : squares)
        for (int j = 0; j < D; j++) squares += sum[j] * sum[j];
        float r = 1 / sqrtf(squares / (float)D + eps);
        rstd[i] = r;
        for (int j = 0; j < D; j++) y[j] = w[j] * (sum[j] * r);
    }
}

/* With u = x rstd: dx = rstd (w dy - u mean(w dy u)); dw = sum over tokens of dy u. */
static void norm_backward(struct backend *be, real_t *dxv, float *dw, const real_t *dyv,
                          const real_t *xv, const float *rstd, const real_t *wv, int N, int D) {
    (void)be;
    const float *w = wv;
#pragma omp parallel for
    for (int i = 0; i < N; i++) {
        size_t at = (size_t)i * (size_t)D;
        float *dx = (float *)dxv + at;
        const float *dy = (const float *)dyv + at, *x = (const float *)xv + at;
        float r = rstd[i], dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int j = 0; j < D; j++) dot += w[j] * dy[j] * x[j];
        float c = dot * r * r / (float)D;
        for (int j = 0; j < D; j++) dx[j] += r * (w[j] * dy[j] - x[j] * c);
    }
    /* each thread takes a run of columns and goes through all tokens in order */
#pragma omp parallel for
    for (int block = 0; block < (D + 63) / 64; block++) {
        int first = block * 64, last = first + 64 < D ? first + 64 : D;
        for (int i = 0; i < N; i++) {
            const float *dy = (const float *)dyv + (size_t)i * (size_t)D,
                        *x = (const float *)xv + (size_t)i * (size_t)D;
            for (int j = first; j < last; j++) dw[j] += dy[j] * (x[j] * rstd[i]);
        }
    }
}

static void matmul(struct backend *be, real_t *y, const real_t *x, const real_t *w, int N, int M,
                   int D) {
    cpu_product(be, NO_TRANSPOSE, TRANSPOSE, N, M, D, x, D, w, D, 0, y, M);
}

static void matmul_dx(struct backend *be, real_t *dx, const real_t *dy, const real_t *w, int N,
                      int M, int D, int accumulate) {
    cpu_product(be, NO_TRANSPOSE, NO_TRANSPOSE, N, D, M, dy, M, w, D, accumulate ? 1 : 0, dx, D);
}

static void matmul_dw(struct backend *be, float *dw, const real_t *dy, const real_t *x, int N,
                      int M, int D, int accumulate) {
    if (N > 0) cpu_product(be, TRANSPOSE, NO_TRANSPOSE, M, D, N, dy, M, x, D, accumulate, dw, D);
    if (N == 0 && !accumulate) memset(dw, 0, (size_t)M * (size_t)D * sizeof *dw);
}

void cpu_fill_dense(struct backend *be) {
    be->embed = embed;
    be->embed_backward = embed_backward;
    be->add_norm = add_norm;
    be->norm_backward = norm_backward;
    be->matmul = matmul;
    be->matmul_dx = matmul_dx;
    be->matmul_dw = matmul_dw;
}
