/* The experts: y = Wd (p * silu(Wg x) * (Wu x)) on the rows that moe_dispatch laid out, and its
 * gradient. */
#include "config.h"
#include "backend/cpu.h"
#include "backend/cpu_exp.h"
#include <string.h>

static inline float sigmoid(float x) {
    return 1 / (1 + cpu_exp(-x));
}

static void activation(const struct moe_rows *r, float *h, const float *z) {
    size_t F = (size_t)r->shape.F;
#pragma omp parallel for if (cpu_worth((size_t)r->offsets[r->n_local], F))
    for (int i = 0; i < r->offsets[r->n_local]; i++) {
        const float *gate = z + (size_t)i * 2 * F, *u = gate + F;
        float *out = h + (size_t)i * F, p = r->row_p[i];
        for (size_t j = 0; j < F; j++) out[j] = p * (gate[j] * sigmoid(gate[j])) * u[j];
    }
}

static void experts_up(struct backend *be, struct moe *m, real_t *zv, real_t *hv,
                       const real_t *rowsv, const real_t *upv) {
    struct moe_rows r = cpu_moe_rows(m);
    size_t D = (size_t)r.shape.D, F = (size_t)r.shape.F;
    float *z = (float *)zv + r.z_base * 2 * F;
    const float *rows = (const float *)rowsv + r.base * D, *up = upv;
    for (int e = 0; e < r.n_local; e++) {
        size_t first = (size_t)r.offsets[e];
        cpu_product(be, NO_TRANSPOSE, TRANSPOSE, r.offsets[e + 1] - r.offsets[e], (int)(2 * F),
                    (int)D, rows + first * D, (int)D, up + (size_t)e * 2 * F * D, (int)D, 0,
                    z + first * 2 * F, (int)(2 * F));
    }
    activation(&r, hv, z);
    cpu_round_z(be, z, r.offsets[r.n_local], r.shape.F);
}

static void experts_down(struct backend *be, struct moe *m, real_t *yv, const real_t *hv,
                         const real_t *downv) {
    struct moe_rows r = cpu_moe_rows(m);
    size_t D = (size_t)r.shape.D, F = (size_t)r.shape.F;
    for (int e = 0; e < r.n_local; e++) {
        size_t first = (size_t)r.offsets[e];
        cpu_product(be, NO_TRANSPOSE, TRANSPOSE, r.offsets[e + 1] - r.offsets[e], (int)D, (int)F,
                    (const float *)hv + first * F, (int)F, (const float *)downv + (size_t)e * D * F,
                    (int)F, 0, (float *)yv + first * D, (int)D);
    }
}

/* The gradient's rows from number `row` on that go to one place, *to, where they are added with
 * *add; returns one past the last of them. */
static size_t stretch(struct gradient dw, size_t row, size_t end, size_t N, float **to, int *add) {
    size_t own_end = dw.own ? dw.first + dw.rows : 0;
    if (dw.own && row >= dw.first && row < own_end) {
        *to = dw.own + (row - dw.first) * N, *add = dw.own_add;
        return end < own_end ? end : own_end;
    }
    *to = dw.whole + row * N, *add = dw.add;
    return row < own_end && dw.first < end ? dw.first : end;
}

/* dw[e] (+)= a^T b over the expert's rows, a[., M], b[., N] */
static void weight_gradients(struct backend *be, const struct moe_rows *r, struct gradient dw,
                             const float *a, size_t M, const float *b, size_t N) {
    for (int e = 0; e < r->n_local; e++) {
        size_t first = (size_t)r->offsets[e], begin = (size_t)e * M, next;
        int n = r->offsets[e + 1] - r->offsets[e], add;
        float *to;
        for (size_t row = begin; row < begin + M; row = next) {
            next = stretch(dw, row, begin + M, N, &to, &add);
            if (n > 0)
                cpu_product(be, TRANSPOSE, NO_TRANSPOSE, (int)(next - row), (int)N, n,
                            a + first * M + (row - begin), (int)M, b + first * N, (int)N,
                            (float)add, to, (int)N);
            else if (!add)
                memset(to, 0, (next - row) * N * sizeof *to);
        }
    }
}

static void experts_down_backward(struct backend *be, struct moe *m, real_t *dzv, float *dp_rows,
                                  struct gradient ddown, const real_t *dyv, const real_t *zv,
                                  real_t *hv, const real_t *downv) {
    struct moe_rows r = cpu_moe_rows(m);
    size_t D = (size_t)r.shape.D, F = (size_t)r.shape.F;
    const float *dy = dyv, *z = (const float *)zv + r.z_base * 2 * F, *down = downv;
    float *dz = (float *)dzv + r.z_base * 2 * F, *h = hv;
    for (int e = 0; e < r.n_local; e++) {
        size_t first = (size_t)r.offsets[e];
        cpu_product(be, NO_TRANSPOSE, NO_TRANSPOSE, r.offsets[e + 1] - r.offsets[e], (int)F, (int)D,
                    dy + first * D, (int)D, down + (size_t)e * D * F, (int)F, 0, h + first * F,
                    (int)F);
    }
    /* h holds dh, then p a. With s = sigmoid(g), a = g s u:
     * dp = sum dh a, dg = p dh u s (1 + g (1 - s)), du = p dh g s */
#pragma omp parallel for
    for (int i = 0; i < r.offsets[r.n_local]; i++) {
        const float *gate = z + (size_t)i * 2 * F, *u = gate + F;
        float *dh = h + (size_t)i * F, *dgate = dz + (size_t)i * 2 * F, *du = dgate + F,
              p = r.row_p[i], dot = 0;
#pragma omp simd reduction(+ : dot)
        for (size_t j = 0; j < F; j++) {
            float g = gate[j], s = sigmoid(g), up = u[j], d = dh[j];
            dot += d * g * s * up;
            dgate[j] = p * d * up * s * (1 + g * (1 - s));
            du[j] = p * d * g * s;
            dh[j] = p * (g * s) * up;
        }
        dp_rows[i] = dot;
    }
    weight_gradients(be, &r, ddown, dy, D, h, F);
}

static void experts_up_backward(struct backend *be, struct moe *m, real_t *drowsv,
                                struct gradient dup, const real_t *dzv, const real_t *rowsv,
                                const real_t *upv) {
    struct moe_rows r = cpu_moe_rows(m);
    size_t D = (size_t)r.shape.D, F = (size_t)r.shape.F;
    const float *dz = (const float *)dzv + r.z_base * 2 * F, *up = upv;
    weight_gradients(be, &r, dup, dz, 2 * F, (const float *)rowsv + r.base * D, D);
    for (int e = 0; e < r.n_local; e++) {
        size_t first = (size_t)r.offsets[e];
        cpu_product(be, NO_TRANSPOSE, NO_TRANSPOSE, r.offsets[e + 1] - r.offsets[e], (int)D,
                    (int)(2 * F), dz + first * 2 * F, (int)(2 * F), up + (size_t)e * 2 * F * D,
                    (int)D, 0, (float *)drowsv + first * D, (int)D);
    }
}

void cpu_fill_experts(struct backend *be) {
    be->experts_up = experts_up;
    be->experts_down = experts_down;
    be->experts_down_backward = experts_down_backward;
    be->experts_up_backward = experts_up_backward;
}
