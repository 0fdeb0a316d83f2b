/* The sums behind these losses are a few thousand numbers: one block. */
#include "balance.h"
#include "check.h"
#include "sum.cuh"
#include <cassert>

enum { THREADS = 1024, MAX_EXPERTS = 256 };

struct balance_sums {
    double *aux, *z, *entropy;
    uint32_t *counts;
};

static __global__ void __launch_bounds__(THREADS)
    balance(float *dprobs, float *dz, struct balance_sums step, const uint32_t *counts,
            const uint32_t *own_counts, const double *P, const double *entropy, const double *z,
            struct balance_rule r) {
    __shared__ double pooled[MAX_EXPERTS]; /* counts summed over the layers */
    int lane = threadIdx.x % 32;
    double n = 0, aux = 0, z_mean = 0;
    for (int e = lane; e < r.E; e += 32) n += counts[e];
    n = warp_sum(n) / r.A;
    if (n == 0) n = 1;
    if (r.hf) {
        if (threadIdx.x < r.E) {
            double count = 0;
            for (int l = 0; l < r.L; l++) count += counts[l * r.E + threadIdx.x];
            pooled[threadIdx.x] = count;
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < r.L * r.E; i += THREADS) {
        /* aux is linear in P: slope = d aux / d P_le */
        double count = r.hf ? pooled[i % r.E] : counts[i];
        double slope = r.E * count / (r.hf ? r.L * n * r.L * n : n * r.A * n);
        aux += slope * P[i];
        dprobs[i] = static_cast<float>(r.coef * slope * r.weight);
        step.counts[i] += own_counts[i];
    }
    for (int l = threadIdx.x; l < r.L; l += THREADS) {
        z_mean += z[l] / n;
        step.entropy[l] += entropy[l];
    }
    aux = block_sum<THREADS>(aux);
    z_mean = block_sum<THREADS>(z_mean);
    if (threadIdx.x == 0) {
        *step.aux += r.weight * aux;
        *step.z += r.weight * z_mean;
        *dz = static_cast<float>(r.z_coef * r.weight / n);
    }
}

extern "C" void balance_losses(float *dprobs, float *dz, double *aux, double *z_sum,
                               double *entropy_sum, uint32_t *counts_sum, const uint32_t *counts,
                               const uint32_t *own_counts, const double *P, const double *entropy,
                               const double *z, struct balance_rule rule, cudaStream_t stream) {
    assert(rule.E >= 1 && rule.E <= MAX_EXPERTS);
    balance<<<1, THREADS, 0, stream>>>(dprobs, dz, {aux, z_sum, entropy_sum, counts_sum}, counts,
                                       own_counts, P, entropy, z, rule);
    check(cudaGetLastError());
}
