/* How metrics.h5 lies on disk: one table of its series, and the file handle through which rows go
 * in and out.
 *
 * Every series is a contiguous dataset made at its full length when the file is created; afterwards
 * rows are written in place and no byte of metadata changes, which is why the file can be read at
 * any moment. Only the metrics layer includes this. */
#ifndef REGULON_METRICS_LAYOUT_H
#define REGULON_METRICS_LAYOUT_H
#include "data/markov.h"
#include <hdf5.h>
#include <stdint.h>

#define METRICS_FORMAT "regulon metrics"
enum { METRICS_VERSION = 1, METRICS_KIND_BYTES = 16, METRICS_TEXT_BYTES = 240 };

enum layout_group {
    GROUP_STEPS,
    GROUP_EXPERTS,
    GROUP_TIMING,
    GROUP_VALIDATION,
    GROUP_EVENTS,
    N_GROUPS
};

/* The series, group by group. A group's `step` stands last and is written last: it says that its
 * row is whole. */
enum layout_series {
    STEPS_TOKENS,
    STEPS_LOSS,
    STEPS_AUX_LOSS,
    STEPS_Z_LOSS,
    STEPS_GRAD_NORM,
    STEPS_LEARNING_RATE,
    STEPS_STEP_S,
    STEPS_TOKENS_PER_S,
    STEPS_TFLOPS,
    STEPS_MFU,
    STEPS_MEMORY_BYTES,
    STEPS_USEFUL_TOKENS,
    STEPS_PADDED_TOKENS,
    STEPS_STEP,
    EXPERTS_TOKENS,
    EXPERTS_ENTROPY,
    EXPERTS_STEP,
    TIMING_DATA,
    TIMING_FORWARD,
    TIMING_BACKWARD,
    TIMING_EXCHANGE,
    TIMING_REDUCE,
    TIMING_OPTIMIZER,
    TIMING_CHECKPOINT,
    TIMING_STEP,
    VALIDATION_TOKENS,
    VALIDATION_LOSS,
    VALIDATION_BITS_PER_BASE,
    VALIDATION_STEP,
    EVENTS_TIME,
    EVENTS_KIND,
    EVENTS_TEXT,
    EVENTS_STEP,
    N_SERIES
};

/* The series `step` of a group, which is also the last of its group in the enum. */
enum layout_series layout_step_of(enum layout_group g);

/* Lengths of all dimensions. */
struct layout_size {
    int64_t rows[N_GROUPS]; /* that the file has room for; at least 1 each */
    int64_t n_layers, n_experts;
};

struct layout {
    hid_t file;
    struct layout_size size;
    hid_t dataset[N_SERIES];
    hid_t space[N_SERIES]; /* of the whole dataset; its selection is scratch */
};

/* Creates `path`, or replaces it, with every row unwritten (NaN, -1, 0 or "") and the groups' fixed
 * datasets. */
void layout_create(struct layout *l, const char *path, const struct layout_size *size,
                   const double markov_bits_per_base[MARKOV_ORDERS]);

/* Opens an existing file to read; `size` is what it has. die_user (65) if it is not ours or lacks
 * something. */
void layout_open(struct layout *l, const char *path);
void layout_close(struct layout *l);

/* n rows from `row` on, in memory as in the file: int64_t, double, float, uint32_t or fixed
 * strings, [n, ...]. */
void layout_write(struct layout *l, enum layout_series s, int64_t row, int64_t n,
                  const void *values);
void layout_read(struct layout *l, enum layout_series s, int64_t row, int64_t n, void *values);
size_t layout_row_bytes(const struct layout *l, enum layout_series s);

/* Whole rows of a group with step <= last_step: they come first, in order. */
int64_t layout_rows(struct layout *l, enum layout_group g, int64_t last_step);

/* The fixed dataset /validation/markov_bits_per_base[order]. */
void layout_read_markov(struct layout *l, double bits_per_base[MARKOV_ORDERS]);
#endif
