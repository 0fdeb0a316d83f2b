/* What eight bits do to operands (low_statistics of backend.h). */
#include "config.h"
#include "backend/cuda.h"
#include "low_statistics.h"
#include <assert.h>

static void low_statistics(struct backend *be, double *sums, struct low_operand o) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_rows r = {0};
    assert(be->low == LOW_FP8_BLOCK && s->scratch);
    if (o.m) r = cuda_moe_rows(be, o.m);
    switch (o.place) {
    case LOW_TOKENS:
        low_statistics_dense(sums, o.x, o.rows, o.cols, s->scratch, s->stream);
        break;
    case LOW_WEIGHTS:
        low_statistics_weights(sums, o.x, o.n * o.rows, o.cols, s->scratch, s->stream);
        break;
    case LOW_ROWS:
        low_statistics_rows(sums, o.x, cuda_stashed_rows(be, &r), r.shape.D, s->scratch, s->stream);
        break;
    case LOW_RESULTS:
        low_statistics_rows(sums, o.x, cuda_grouped_rows(be, &r), r.shape.D, s->scratch, s->stream);
        break;
    case LOW_H:
        low_statistics_h(sums, o.x, r.row_p, cuda_stashed_rows(be, &r), r.shape.F, s->scratch,
                         s->stream);
        break;
    case LOW_DZ: /* h holds dh: see cuda_low_down_backward */
        low_statistics_dz(sums, o.h, o.x, r.row_p, cuda_stashed_rows(be, &r), r.shape.F, s->scratch,
                          s->stream);
        break;
    }
}

void cuda_fill_statistics(struct backend *be) {
    be->low_statistics = low_statistics;
}
