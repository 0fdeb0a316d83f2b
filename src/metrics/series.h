/* The table of metrics.h5: every series with its group, type, dimensions and description. Only the
 * metrics layer includes this. */
#ifndef REGULON_METRICS_SERIES_H
#define REGULON_METRICS_SERIES_H
#include <hdf5.h>
#include <stdint.h>

enum { METRICS_KIND_BYTES = 16, METRICS_TEXT_BYTES = 240, N_STATISTICS = 3, MAX_RANK = 3 };

enum series_group {
    GROUP_STEPS,
    GROUP_EXPERTS,
    GROUP_TIMING,
    GROUP_VALIDATION,
    GROUP_EVENTS,
    GROUP_EIGHT_BITS,
    N_GROUPS
};

/* The series, group by group. A group's `step` stands last and is written last: it says that its
 * row is whole. */
enum series_id {
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
    STEPS_MFU_6N,
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
    TIMING_TOTAL,
    TIMING_STEP,
    VALIDATION_TOKENS,
    VALIDATION_LOSS,
    VALIDATION_BITS_PER_BASE,
    VALIDATION_STEP,
    EVENTS_TIME,
    EVENTS_KIND,
    EVENTS_TEXT,
    EVENTS_STEP,
    EIGHT_VALUES,
    EIGHT_UNDERFLOW, /* the figures of low_statistics.h, in their order */
    EIGHT_LARGEST,
    EIGHT_NONFINITE,
    EIGHT_AMAX,
    EIGHT_LEAST_SCALE,
    EIGHT_MOST_SCALE,
    EIGHT_ERROR,
    EIGHT_STEP,
    N_SERIES
};

enum series_kind { COUNT, REAL, REAL32, TOKENS32, CHARACTER };

/* Dimensions behind the rows; each has a scale of its own in its group. */
enum series_dimension {
    NONE,
    LAYER,
    EXPERT,
    STATISTIC,
    KIND_LENGTH,
    TEXT_LENGTH,
    KIND,
    N_DIMENSIONS
};

struct series {
    enum series_group group;
    const char *name;
    enum series_kind kind;
    enum series_dimension dimensions[MAX_RANK - 1];
    const char *units, *long_name, *comment; /* comment: NULL: none */
    int added; /* to format version 1 after its first files: they lack it */
};
extern const struct series series_table[N_SERIES];
extern const char *const series_group_names[N_GROUPS];

/* Lengths of all dimensions. */
struct series_size {
    int64_t rows[N_GROUPS]; /* that the file has room for; at least 1 each */
    int64_t n_layers, n_experts;
};

/* The series `step` of a group, which is also the last of its group in the enum. */
enum series_id series_step_of(enum series_group g);

/* An HDF5 type, to be closed; in memory native, in the file little-endian. */
hid_t series_type(enum series_kind kind, int in_file);

/* The shape of a series, rows first; returns its rank. */
int series_shape(const struct series_size *size, enum series_id s, hsize_t shape[MAX_RANK]);
#endif
