/* The head: logits and cross-entropy for CPU_CHUNK tokens at a time, with their gradients. */
#include "config.h"
#include "backend/cpu.h"
#include "backend/cpu_exp.h"
#include <math.h>
#include <string.h>

/* logits[V] becomes scale * weight * (softmax - 1 at target), or zeros; returns weight * (lse -
 * logit). */
static double token_loss(float *logits, int V, int32_t target, float weight, float scale) {
    if (target < 0) {
        for (int v = 0; v < V; v++) logits[v] = 0;
        return 0;
    }
    float most = -INFINITY, sum = 0, at_target = logits[target];
#pragma omp simd reduction(max : most)
    for (int v = 0; v < V; v++) most = logits[v] > most ? logits[v] : most;
#pragma omp simd reduction(+ : sum)
    for (int v = 0; v < V; v++) {
        float e = cpu_exp(logits[v] - most);
        logits[v] = e;
        sum += e;
    }
    float factor = scale * weight / sum;
    for (int v = 0; v < V; v++) logits[v] *= factor;
    logits[target] -= scale * weight;
    return weight * ((double)most + log((double)sum) - (double)at_target);
}

static void head(struct backend *be, real_t *dxv, float *dw, double *total, double *each,
                 const real_t *xv, const real_t *w, const int32_t *targets, const float *weights,
                 const float *scale, int N, int V, int D, int accumulate) {
    double loss = 0;
    float factor = scale ? *scale : 1;
    size_t room = (size_t)CPU_CHUNK * (size_t)V;
    float *logits = cpu_scratch(be, room);
    for (int first = 0; first < N; first += CPU_CHUNK) {
        int n = first + CPU_CHUNK < N ? CPU_CHUNK : N - first;
        const float *x = (const float *)xv + (size_t)first * (size_t)D;
        double losses[CPU_CHUNK];
        cpu_gemm(NO_TRANSPOSE, TRANSPOSE, n, V, D, 1, x, D, w, D, 0, logits, V);
#pragma omp parallel for
        for (int i = 0; i < n; i++)
            losses[i] = token_loss(logits + (size_t)i * (size_t)V, V, targets[first + i],
                                   weights[first + i], factor);
        for (int i = 0; i < n; i++) loss += losses[i];
        if (each) memcpy(each + first, losses, (size_t)n * sizeof *each);
        if (!dxv) continue;
        cpu_gemm(NO_TRANSPOSE, NO_TRANSPOSE, n, D, V, 1, logits, V, w, D, 0,
                 (float *)dxv + (size_t)first * (size_t)D, D);
        cpu_gemm(TRANSPOSE, NO_TRANSPOSE, V, D, n, 1, logits, V, x, D, accumulate || first > 0, dw,
                 D);
    }
    if (dxv && N == 0 && !accumulate) memset(dw, 0, (size_t)V * (size_t)D * sizeof *dw);
    *total += loss;
}

void cpu_fill_head(struct backend *be) {
    be->head = head;
}
