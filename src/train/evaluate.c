#include "config.h"
#include "train/evaluate.h"
#include "data/loader.h"
#include "grid/watchdog.h"
#include <math.h>

struct evaluation evaluate_streams(struct model *m, struct stream *const *streams, int n_streams,
                                   int64_t n_batches, struct batch *b, evaluate_stop *stop,
                                   const void *context, const struct evaluate_each *each) {
    const struct grid *g = m->be->grid;
    double *loss = m->sums + SUMS_LOSS, sums[2] = {0, 0};
    m->be->zero(m->be, loss, sizeof *loss);
    for (int i = 0; i < n_streams; i++) {
        int64_t n = loader_chunks(streams[i], b->capacity);
        /* n_batches are shared out evenly, the first streams get one more */
        int64_t share = n_batches / n_streams + (i < n_batches % n_streams);
        if (n_batches > 0 && n > share) n = share;
        for (int64_t first = 0; first < n; first += g->n_ranks) {
            watchdog_phase(WATCHDOG_DATA, -1);
            if (stop && agree_any(g, stop(context))) return (struct evaluation){.stopped = 1};
            /* a rank past the end takes part with no tokens */
            if (first + g->rank < n)
                loader_fill_chunk(streams[i], first + g->rank, b);
            else
                batch_clear(b);
            for (int k = 0; k < b->n; k++) b->weights[k] = b->targets[k] >= 0;
            model_forward(m, b);
            model_loss(m, loss, each ? each->losses : NULL);
            if (each) each->take(each->context, i, first, n, b);
            sums[1] += (double)b->n_targets;
        }
    }
    m->be->download(m->be, sums, loss, sizeof *loss);
    double seconds[N_CLOCKS]; /* of no step */
    m->be->clock_read(m->be, seconds);
    agree_sum(g, sums, 2);
    struct evaluation e = {.loss = sums[0] / sums[1], .targets = sums[1]};
    e.bits_per_base = e.loss / log(2);
    return e;
}
