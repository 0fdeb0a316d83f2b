/* Rows of metrics.h5, handed to the I/O thread, which is the only one in HDF5 once a run goes on.
 * Rank 0. What is passed is copied. */
#ifndef REGULON_TRAIN_JOURNAL_H
#define REGULON_TRAIN_JOURNAL_H
#include "metrics/metrics.h"

void journal_step(struct metrics *m, const struct metrics_step *row, int64_t n_layers,
                  int64_t n_experts);
void journal_validation(struct metrics *m, int64_t step, int64_t tokens, double loss,
                        double bits_per_base);
void journal_eight_bits(struct metrics *m, int64_t step, struct low_figures f); /* which it frees */
void journal_event(struct metrics *m, enum metrics_event kind, int64_t step, const char *text);
#endif
