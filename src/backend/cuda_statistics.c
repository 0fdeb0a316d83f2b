/* What eight bits do to operands (low_statistics of backend.h). */
#include "config.h"
#include "backend/cuda.h"
#include "low_statistics.h"
#include <assert.h>

/* x[., cols] of an expert layer, BF16. */
static void of_rows(struct backend *be, double *sums, enum low_blocks blocks, const real_t *x,
                    const struct cuda_rows *r, const int32_t *base, int cols) {
    struct cuda_state *s = cuda_state(be);
    low_statistics(sums, blocks, x, base, r->offsets + r->n_local, (int)r->most, cols, s->scratch,
                   s->stream);
}

/* Where units for eight bits serve, h and dz lie there in eight bits alone. */
static void of_h(struct backend *be, double *sums, enum low_blocks blocks, struct low_operand o,
                 const struct cuda_rows *r) {
    struct cuda_state *s = cuda_state(be);
    if (s->low)
        low_statistics_h(sums, cuda_low_kept_z(be, o.x, r), r->row_p, cuda_stashed_rows(be, r),
                         r->shape.F, s->scratch, s->stream);
    else
        of_rows(be, sums, blocks, cuda_mxfp8_h(be, r, o.x, o.h), r, NULL, r->shape.F);
}

static void of_dz(struct backend *be, double *sums, enum low_blocks blocks, struct low_operand o,
                  const struct cuda_rows *r) {
    struct cuda_state *s = cuda_state(be);
    if (s->low) /* h holds dh: see cuda_low_down_backward */
        low_statistics_dz(sums, o.h, cuda_low_kept_z(be, o.x, r), r->row_p,
                          cuda_stashed_rows(be, r), r->shape.F, s->scratch, s->stream);
    else
        of_rows(be, sums, blocks, o.x, r, r->z_base, 2 * r->shape.F);
}

static void take(struct backend *be, double *sums, struct low_operand o) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_rows r = {0};
    enum low_blocks blocks = be->low == LOW_MXFP8     ? LOW_BLOCK_MX
                             : o.place == LOW_WEIGHTS ? LOW_BLOCK_SQUARE
                                                      : LOW_BLOCK_LINE;
    assert(be->low != LOW_NONE && s->scratch);
    if (o.m) r = cuda_moe_rows(be, o.m);
    switch (o.place) {
    case LOW_TOKENS:
    case LOW_WEIGHTS:
        low_statistics(sums, blocks, o.x, NULL, NULL,
                       o.place == LOW_WEIGHTS ? o.n * o.rows : o.rows, o.cols, s->scratch,
                       s->stream);
        break;
    case LOW_ROWS:
        of_rows(be, sums, blocks, o.x, &r, r.x_base, r.shape.D);
        break;
    case LOW_RESULTS:
        of_rows(be, sums, blocks, o.x, &r, NULL, r.shape.D);
        break;
    case LOW_H:
        of_h(be, sums, blocks, o, &r);
        break;
    case LOW_DZ:
        of_dz(be, sums, blocks, o, &r);
        break;
    }
}

void cuda_fill_statistics(struct backend *be) {
    be->low_statistics = take;
}
