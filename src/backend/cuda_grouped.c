/* The experts' products by the grouped kernels: one launch for all of them, whose rows the host
 * does not count. The activation and its gradient are in them, or (engine.fused false) in passes
 * of their own. */
#include "config.h"
#include "backend/cuda.h"
#include "grouped_gemm.h"
#include "swiglu.h"
#include <assert.h>

struct grouped_rows cuda_grouped_rows(const struct backend *be, const struct cuda_rows *r) {
    return (struct grouped_rows){.offsets = r->offsets,
                                 .E = r->n_local,
                                 .rows = (int)r->most,
                                 .multiprocessors = cuda_state(be)->product_sms};
}

struct grouped_rows cuda_stashed_rows(const struct backend *be, const struct cuda_rows *r) {
    struct grouped_rows g = cuda_grouped_rows(be, r);
    g.x = (struct grouped_place){r->x_base, (int)r->x_most};
    g.z = (struct grouped_place){r->z_base, (int)r->z_most};
    return g;
}

static void up(struct backend *be, const struct cuda_rows *r, real_t *z, real_t *h, const real_t *x,
               const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    grouped_up(s->grouped, z, h, x, w, r->row_p, cuda_stashed_rows(be, r), r->shape.D, r->shape.F,
               s->stream);
}

static void down(struct backend *be, const struct cuda_rows *r, real_t *y, const real_t *h,
                 const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    grouped_forward(s->grouped, y, h, w, cuda_grouped_rows(be, r), r->shape.D, r->shape.F,
                    s->stream);
}

static void down_gradient(struct backend *be, const struct cuda_rows *r, real_t *dz, real_t *h,
                          float *dp_rows, const real_t *dy, const real_t *z, const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    grouped_down_backward(s->grouped, dz, h, dp_rows, s->scratch, dy, z, w, r->row_p,
                          cuda_stashed_rows(be, r), r->shape.D, r->shape.F, s->stream);
}

static void up_gradient(struct backend *be, const struct cuda_rows *r, real_t *dx, const real_t *dz,
                        const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    grouped_backward(s->grouped, dx, dz, w, cuda_stashed_rows(be, r), 2 * r->shape.F, r->shape.D,
                     s->stream);
}

static void down_weights(struct backend *be, const struct cuda_rows *r, struct gradient dw,
                         const real_t *dy, const real_t *h) {
    struct cuda_state *s = cuda_state(be);
    grouped_weights(s->grouped, dw, dy, h, cuda_grouped_rows(be, r), r->shape.D, r->shape.F,
                    s->stream);
}

static void up_weights(struct backend *be, const struct cuda_rows *r, struct gradient dw,
                       const real_t *dz, const real_t *x) {
    struct cuda_state *s = cuda_state(be);
    grouped_weights(s->grouped, dw, dz, x, cuda_stashed_rows(be, r), 2 * r->shape.F, r->shape.D,
                    s->stream);
}

const struct cuda_products cuda_grouped = {.up = up,
                                           .down = down,
                                           .down_gradient = down_gradient,
                                           .up_gradient = up_gradient,
                                           .down_weights = down_weights,
                                           .up_weights = up_weights};

/* ---- not fused: without a stash, into which these products cannot write ---- */

static void up_apart(struct backend *be, const struct cuda_rows *r, real_t *z, real_t *h,
                     const real_t *x, const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    assert(!r->x_base && !r->z_base);
    grouped_forward(s->grouped, z, x, w, cuda_grouped_rows(be, r), 2 * r->shape.F, r->shape.D,
                    s->stream);
    swiglu_forward(s->real, h, z, r->row_p, (int)r->most, r->offsets + r->n_local, r->shape.F,
                   s->stream);
}

static void down_gradient_apart(struct backend *be, const struct cuda_rows *r, real_t *dz,
                                real_t *h, float *dp_rows, const real_t *dy, const real_t *z,
                                const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    grouped_backward(s->grouped, h, dy, w, cuda_grouped_rows(be, r), r->shape.D, r->shape.F,
                     s->stream); /* h holds dh */
    swiglu_backward(s->real, dz, dp_rows, h, h, z, r->row_p, (int)r->most, r->offsets + r->n_local,
                    r->shape.F, s->stream);
}

const struct cuda_products cuda_grouped_apart = {.up = up_apart,
                                                 .down = down,
                                                 .down_gradient = down_gradient_apart,
                                                 .up_gradient = up_gradient,
                                                 .down_weights = down_weights,
                                                 .up_weights = up_weights};
