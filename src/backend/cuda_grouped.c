/* The experts by the grouped kernels: one launch for all of them, whose rows the host does not
 * count. */
#include "config.h"
#include "backend/cuda.h"
#include "grouped_gemm.h"

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

static void experts_up(struct backend *be, struct moe *m, real_t *z, real_t *h, const real_t *rows,
                       const real_t *up) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_rows r = cuda_moe_rows(be, m);
    if (be->low != LOW_NONE) {
        cuda_low_up(be, m, z, h, rows, up);
        return;
    }
    grouped_up(s->grouped, z, h, rows, up, r.row_p, cuda_stashed_rows(be, &r), r.shape.D, r.shape.F,
               s->stream);
}

static void experts_down(struct backend *be, struct moe *m, real_t *y, const real_t *h,
                         const real_t *down) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_rows r = cuda_moe_rows(be, m);
    if (be->low != LOW_NONE) {
        cuda_low_down(be, m, y, h, down);
        return;
    }
    grouped_forward(s->grouped, y, h, down, cuda_grouped_rows(be, &r), r.shape.D, r.shape.F,
                    s->stream);
}

static void experts_down_backward(struct backend *be, struct moe *m, real_t *dz, float *dp_rows,
                                  float *ddown, const real_t *dy, const real_t *z, real_t *h,
                                  const real_t *down, int accumulate) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_rows r = cuda_moe_rows(be, m);
    if (be->low != LOW_NONE) {
        cuda_low_down_backward(be, m, dp_rows, ddown, dy, z, h, down, accumulate);
        return;
    }
    grouped_down_backward(s->grouped, dz, h, dp_rows, s->scratch, dy, z, down, r.row_p,
                          cuda_stashed_rows(be, &r), r.shape.D, r.shape.F, s->stream);
    grouped_weights(s->grouped, ddown, dy, h, cuda_grouped_rows(be, &r), r.shape.D, r.shape.F,
                    accumulate, s->stream);
}

static void experts_up_backward(struct backend *be, struct moe *m, real_t *drows, float *dup,
                                const real_t *dz, const real_t *rows, const real_t *up,
                                int accumulate) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_rows r = cuda_moe_rows(be, m);
    if (be->low != LOW_NONE) {
        cuda_low_up_backward(be, m, drows, dup, rows, up, accumulate);
        return;
    }
    grouped_backward(s->grouped, drows, dz, up, cuda_stashed_rows(be, &r), 2 * r.shape.F, r.shape.D,
                     s->stream);
    grouped_weights(s->grouped, dup, dz, rows, cuda_stashed_rows(be, &r), 2 * r.shape.F, r.shape.D,
                    accumulate, s->stream);
}

void cuda_fill_grouped(struct backend *be) {
    be->experts_up = experts_up;
    be->experts_down = experts_down;
    be->experts_down_backward = experts_down_backward;
    be->experts_up_backward = experts_up_backward;
}
