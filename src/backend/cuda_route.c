/* The router on the device, and the losses that keep the experts evenly used. */
#include "config.h"
#include "backend/cuda.h"
#include "balance.h"
#include "route.h"

static void route(struct backend *be, struct routing *r, float *logits, const real_t *x,
                  const real_t *w, const float *bias, int N, struct moe_shape m) {
    struct cuda_state *s = cuda_state(be);
    cuda_gemm(be, 0, CUDA_NO_TRANSPOSE, CUDA_TRANSPOSE, N, m.E, m.D, x, w, 0, logits, /*c_fp32=*/1);
    if (be->forced)
        route_forced(r->probs, r->lse, r->ids, r->p, r->counts, r->P, r->entropy, r->z, logits,
                     s->scratch, N, m.E, m.A, s->stream);
    else
        route_forward(r->probs, r->lse, r->ids, r->p, r->counts, r->P, r->entropy, r->z, logits,
                      bias, s->scratch, N, m.E, m.A, s->stream);
}

static void route_gradient(struct backend *be, real_t *dx, float *dw, float *dlogits,
                           const struct routing *r, const float *dp, const float *dprobs,
                           const float *dz, const real_t *x, const real_t *w, int N,
                           struct moe_shape m, int accumulate) {
    struct cuda_state *s = cuda_state(be);
    route_backward(s->real, dlogits, dp, r->probs, r->lse, r->ids, r->p, dprobs, dz, N, m.E, m.A,
                   s->stream);
    be->matmul_dx(be, dx, dlogits, w, N, m.E, m.D, /*accumulate=*/1);
    be->matmul_dw(be, dw, dlogits, x, N, m.E, m.D, accumulate);
}

static void balance(struct backend *be, float *dprobs, float *dz, struct tally t,
                    const uint32_t *counts, const uint32_t *own_counts, const double *P,
                    const double *z, const double *entropy, struct balance b) {
    balance_losses(dprobs, dz, t.aux, t.z, t.entropy, t.counts, counts, own_counts, P, entropy, z,
                   (struct balance_rule){.L = b.L,
                                         .E = b.E,
                                         .A = b.A,
                                         .hf = b.hf,
                                         .coef = b.coef,
                                         .z_coef = b.z_coef,
                                         .weight = b.weight},
                   cuda_state(be)->stream);
}

void cuda_fill_route(struct backend *be) {
    be->route = route;
    be->route_backward = route_gradient;
    be->balance = balance;
}
