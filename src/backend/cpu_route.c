/* The router: softmax over the experts, the A most probable, renormalised; and its gradient. */
#include "config.h"
#include "backend/cpu.h"
#include <math.h>
#include <string.h>

/* The A largest of probs[e] + bias[e], ties to the lowest id; ids ascending. The comparison is
 * written so that NaN everywhere still chooses A different experts. */
static void choose(const float *probs, const float *bias, int E, int A, int32_t *ids) {
    for (int a = 0; a < A; a++) {
        int best = -1;
        float most = 0;
        for (int e = 0; e < E; e++) {
            int taken = 0;
            for (int b = 0; b < a; b++) taken |= ids[b] == e;
            float score = probs[e] + (bias ? bias[e] : 0);
            if (!taken && (best < 0 || score > most)) best = e, most = score;
        }
        ids[a] = best;
    }
    for (int a = 1; a < A; a++) /* insertion sort */
        for (int b = a; b > 0 && ids[b] < ids[b - 1]; b--) {
            int32_t swap = ids[b];
            ids[b] = ids[b - 1], ids[b - 1] = swap;
        }
}

static void route(struct backend *be, struct routing *r, float *logits, const real_t *x,
                  const real_t *w, const float *bias, int N, struct moe_shape s) {
    int E = s.E, A = s.A;
    be->matmul(be, logits, x, w, N, E, s.D);
#pragma omp parallel for if (cpu_worth((size_t)N, (size_t)(E * A)))
    for (int i = 0; i < N; i++) {
        const float *in = logits + (size_t)i * (size_t)E;
        float *probs = r->probs + (size_t)i * (size_t)E, *p = r->p + (size_t)i * (size_t)A;
        int32_t *ids = r->ids + (size_t)i * (size_t)A;
        float most = -INFINITY, sum = 0, chosen = 0;
        for (int e = 0; e < E; e++) most = in[e] > most ? in[e] : most;
        for (int e = 0; e < E; e++) sum += probs[e] = expf(in[e] - most);
        for (int e = 0; e < E; e++) probs[e] /= sum;
        r->lse[i] = most + logf(sum);
        if (!be->forced) choose(probs, bias, E, A, ids);
        for (int a = 0; a < A; a++) chosen += probs[ids[a]];
        for (int a = 0; a < A; a++) p[a] = probs[ids[a]] / chosen;
    }
    memset(r->counts, 0, (size_t)E * sizeof *r->counts);
    memset(r->P, 0, (size_t)E * sizeof *r->P);
    *r->entropy = *r->z = 0;
    for (int i = 0; i < N; i++) {
        const float *probs = r->probs + (size_t)i * (size_t)E, *in = logits + (size_t)i * (size_t)E;
        double dot = 0, lse = r->lse[i];
        for (int a = 0; a < A; a++) r->counts[r->ids[(size_t)i * (size_t)A + (size_t)a]]++;
        for (int e = 0; e < E; e++) r->P[e] += probs[e], dot += (double)probs[e] * in[e];
        *r->entropy += lse - dot;
        *r->z += lse * lse;
    }
}

/* p_a = s_a / S with s = softmax(logits), S the sum over the chosen: ds_a = (dp_a - sum_b dp_b p_b)
 * / S for the chosen, plus dprobs for all; dlogits = s (ds - sum_e ds_e s_e) + 2 dz lse s. */
static void route_backward(struct backend *be, real_t *dx, float *dw, float *dlogits,
                           const struct routing *r, const float *dp, const float *dprobs,
                           const float *dz, const real_t *x, const real_t *w, int N,
                           struct moe_shape s, int accumulate) {
    int E = s.E, A = s.A;
#pragma omp parallel for
    for (int i = 0; i < N; i++) {
        const float *probs = r->probs + (size_t)i * (size_t)E, *p = r->p + (size_t)i * (size_t)A;
        const float *di = dp + (size_t)i * (size_t)A;
        const int32_t *ids = r->ids + (size_t)i * (size_t)A;
        float *out = dlogits + (size_t)i * (size_t)E, chosen = 0, mean = 0, dot = 0;
        for (int a = 0; a < A; a++) chosen += probs[ids[a]], mean += di[a] * p[a];
        for (int e = 0; e < E; e++) out[e] = dprobs[e];
        for (int a = 0; a < A; a++) out[ids[a]] += (di[a] - mean) / chosen;
        for (int e = 0; e < E; e++) dot += out[e] * probs[e];
        for (int e = 0; e < E; e++) out[e] = probs[e] * (out[e] - dot + 2 * dz[0] * r->lse[i]);
    }
    be->matmul_dx(be, dx, dlogits, w, N, E, s.D, /*accumulate=*/1);
    be->matmul_dw(be, dw, dlogits, x, N, E, s.D, accumulate);
}

static void balance(struct backend *be, float *dprobs, float *dz, struct tally tally,
                    const uint32_t *counts, const uint32_t *own_counts, const double *P,
                    const double *z, const double *entropy, struct balance b) {
    (void)be;
    size_t L = (size_t)b.L, E = (size_t)b.E;
    double tokens = 0, aux = 0, z_sum = 0;
    for (size_t e = 0; e < E; e++) tokens += counts[e];
    double N = tokens > 0 ? tokens / b.A : 1;
    for (size_t l = 0; l < L; l++)
        for (size_t e = 0; e < E; e++) {
            double count = 0;
            if (b.hf)
                for (size_t k = 0; k < L; k++) count += counts[k * E + e];
            else
                count = counts[l * E + e];
            /* aux is linear in P: slope = d aux / d P_le */
            double slope = b.hf ? (double)E * count / ((double)L * N * (double)L * N)
                                : (double)E * count / (N * b.A * N);
            aux += slope * P[l * E + e];
            dprobs[l * E + e] = (float)(b.coef * slope * b.weight);
            tally.counts[l * E + e] += own_counts[l * E + e];
        }
    for (size_t l = 0; l < L; l++) {
        z_sum += z[l] / N;
        tally.entropy[l] += entropy[l];
    }
    *dz = (float)(b.z_coef * b.weight / N);
    *tally.aux += aux * b.weight;
    *tally.z += z_sum * b.weight;
}

void cpu_fill_route(struct backend *be) {
    be->route = route;
    be->route_backward = route_backward;
    be->balance = balance;
}
