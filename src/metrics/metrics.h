/* metrics.h5: what happened in a run, row by row, readable by plain h5py while the job runs and
 * after a kill at any write. docs/formats.md is the reference. Written by rank 0 only. */
#ifndef REGULON_METRICS_METRICS_H
#define REGULON_METRICS_METRICS_H
#include "config/config.h"
#include <stdint.h>

struct metrics;

/* What stays the same during a run. Strings are borrowed during the call. */
struct metrics_run {
    const char *grid;    /* "dp 1 x ep 2" */
    const char *backend; /* "cpu (OpenBLAS, 1 thread)" */
    const char *run_id;
    int64_t n_layers, n_experts;
    int64_t n_rows; /* logged steps that num_train_steps can give */
    int64_t n_validation_rows;
    double markov_bits_per_base[9]; /* NaN: none */
};

struct metrics_step {
    int64_t step, tokens; /* tokens: targets seen so far by the whole grid are not these: all real
                             tokens so far */
    double loss, aux_loss, z_loss, grad_norm, learning_rate;
    double step_s, tokens_per_s, tflops, mfu, memory_bytes;
    int64_t useful_tokens, padded_tokens; /* of the step: targets that counted, padding */
    const uint32_t *expert_tokens;        /* [n_layers, n_experts] of the step, whole grid */
    const float *router_entropy;          /* [n_layers] nats, mean over tokens */
    /* seconds of the step by phase: minimum, median and maximum over ranks */
    double timing[7][3];
};
enum metrics_phase {
    PHASE_DATA,
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_EXCHANGE,
    PHASE_REDUCE,
    PHASE_OPTIMIZER,
    PHASE_CHECKPOINT,
    N_PHASES
};

enum metrics_event {
    EVENT_START,
    EVENT_RESUME,
    EVENT_CHECKPOINT,
    EVENT_PREEMPTION,
    EVENT_SKIPPED,
    EVENT_OVERFLOW
};

/* Creates `path` under a temporary name, renames it after its first flush. */
struct metrics *metrics_create(const char *path, const struct config *c,
                               const struct metrics_run *run);
void metrics_step(struct metrics *m,
                  const struct metrics_step *row); /* one row, `step` written last, flushed */
void metrics_validation(struct metrics *m, int64_t step, int64_t tokens, double loss,
                        double bits_per_base);
void metrics_event(struct metrics *m, enum metrics_event kind, int64_t step, const char *text);

/* A clean end: rewrites the file to the rows there are, under a temporary name, and renames. */
void metrics_close(struct metrics *m);
#endif
