/* `regulon bench step`: the whole training step of a deck's model, on random tokens. */
#ifndef REGULON_BENCH_STEPS_H
#define REGULON_BENCH_STEPS_H
#include "config/config.h"
#include "grid/grid.h"
#include <stdio.h>

/* A table on stdout and, where csv is not NULL, the same there: a line for each engine for the
 * experts that serves, or for the deck's. Times are medians of about `seconds` of steps; tokens/s
 * and TFLOP/s of a rank, as shape_flops counts, follow from that of the step. Collective over the
 * grid's world; rank 0 writes. die_user: 78 where the deck does not fit its model or the backend,
 * 76 where a step is not finite. */
void steps_run(const struct config *c, const struct grid *g, double seconds, FILE *csv);
#endif
