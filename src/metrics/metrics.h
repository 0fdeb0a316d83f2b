/* metrics.h5: what happened in a run, row by row, readable by plain h5py while the job runs and
 * after a kill at any write. docs/formats.md is the reference.
 *
 * Written by rank 0 only; no function is collective, and all are called by the one thread that is
 * in HDF5 (h5_open_library before). A row is in the kernel's hands when its function returns: a
 * kill loses none that did return. A row that cannot be written (a full disk) is lost and said,
 * once until one can be again; a file that cannot be created ends the run (74). Rows go in the
 * order of their steps; a group that is full is enlarged by rewriting the file, so the numbers of
 * rows in struct metrics_run are expectations. */
#ifndef REGULON_METRICS_METRICS_H
#define REGULON_METRICS_METRICS_H
#include "config/config.h"
#include "data/markov.h"
#include "model/low_statistics.h"
#include <stdint.h>
#include <stdio.h>

struct metrics;

/* What stays the same during a run. Strings are borrowed during the call. */
struct metrics_run {
    const char *grid;    /* "dp 1 x ep 2" */
    const char *backend; /* "cpu (OpenBLAS, 1 thread)" */
    const char *run_id;
    int64_t n_layers, n_experts; /* at least 1 each */
    int64_t n_rows;              /* logged steps that num_train_steps can give */
    int64_t n_validation_rows;
    int64_t n_eight_bits_rows;
    double markov_bits_per_base[MARKOV_ORDERS]; /* NaN: none */
};

enum metrics_phase {
    PHASE_DATA,
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_EXCHANGE,
    PHASE_REDUCE,
    PHASE_OPTIMIZER,
    PHASE_CHECKPOINT,
    PHASE_TOTAL, /* the whole step */
    N_PHASES
};

struct metrics_step {
    int64_t step, tokens; /* tokens: all real tokens so far, whole grid, targets or not */
    double loss, aux_loss, z_loss, grad_norm, learning_rate;
    double step_s, tokens_per_s, tflops, mfu; /* tflops a rank; mfu NaN: peak unknown */
    double mfu_6n;                            /* as mfu, without attention's scores */
    double memory_bytes;
    int64_t useful_tokens,
        padded_tokens;             /* of the step, whole grid: targets that counted, padding */
    const uint32_t *expert_tokens; /* [n_layers, n_experts] of the step, whole grid */
    const float *router_entropy;   /* [n_layers] nats, mean over tokens */
    double timing[N_PHASES][3];    /* seconds of the step: minimum, median and maximum over ranks */
};

enum metrics_event {
    EVENT_START,  /* written by metrics_create */
    EVENT_RESUME, /* written by metrics_resume */
    EVENT_CHECKPOINT,
    EVENT_PREEMPTION,
    EVENT_SKIPPED,
    EVENT_OVERFLOW,
    EVENT_SPIKE,
    EVENT_STOP, /* the run cannot go on */
};

/* Creates `path` (or replaces it) under a temporary name and renames it once it is whole. Adds the
 * start event. */
struct metrics *metrics_create(const char *path, const struct config *c,
                               const struct metrics_run *run);

/* Goes on with the file of an earlier run of the same model, under a temporary name first: series
 * keep the rows with step <= after_step, so that no step appears twice; events are all kept, and a
 * resume event is added; /run/start stays, the rest of /run, /code and /config is of now. die_user
 * (65) when the file is not ours, or of another number of layers or experts. */
struct metrics *metrics_resume(const char *path, const struct config *c,
                               const struct metrics_run *run, int64_t after_step);

void metrics_step(struct metrics *m,
                  const struct metrics_step *row); /* a row of steps, experts and timing */
void metrics_validation(struct metrics *m, int64_t step, int64_t tokens, double loss,
                        double bits_per_base);
void metrics_eight_bits(struct metrics *m, int64_t step, const struct low_figures *f);
int64_t metrics_steps(const struct metrics *m);           /* rows of steps */
int64_t metrics_last_validation(const struct metrics *m); /* its step, -1: none */
void metrics_event(struct metrics *m, enum metrics_event kind, int64_t step,
                   const char *text); /* 240 bytes kept */

/* A clean end: rewrites the file to the rows there are, under a temporary name, and renames; where
 * that fails the file stays as it is. NULL is fine. */
void metrics_close(struct metrics *m);

/* `regulon info METRICS.h5`: run, grid, steps, losses, speed, events, as text. The file may be in
 * writing. die_user (65) if it is not ours. On one rank. */
void metrics_info(const char *path, FILE *out);
#endif
