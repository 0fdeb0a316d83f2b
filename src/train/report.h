/* What a run prints on stdout: a legend and one line a step. */
#ifndef REGULON_TRAIN_REPORT_H
#define REGULON_TRAIN_REPORT_H
#include "metrics/metrics.h"

/* Rank 0. With logger.progress a bar with the time left stays below the lines. */
void report_legend(void);
void report_step(const struct config *c, const struct metrics_step *row, double balance);
void report_validation(const struct config *c, int64_t step, double loss, double bits_per_base,
                       double markov);
void report_end(const struct config *c);
#endif
