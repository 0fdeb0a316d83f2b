/* What a step is remembered by: its clock, its row in metrics.h5, its line on stdout. */
#ifndef REGULON_TRAIN_RECORD_H
#define REGULON_TRAIN_RECORD_H
#include "train/run.h"
#include "train/spike.h"
#include "train/step.h"

struct record {
    int64_t tokens;      /* real tokens so far, whole grid */
    int64_t bad_steps;   /* skipped, in a row */
    double start, drawn; /* MPI_Wtime */
    struct spike_window spikes;
    double checkpoint_s; /* that training stood still for a checkpoint since the last row */
};

/* The marks of a step, in this order. record_end prints and writes where the step is due
 * (logger.frequency), and notes a skipped step as an event; collective over world. */
void record_begin(struct record *r);
void record_drawn(struct record *r);
void record_end(struct record *r, struct run *run, int64_t step, const struct step_sums *sums,
                double lr);
#endif
