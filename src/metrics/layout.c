#include "config.h"
#include "metrics/layout.h"
#include "base/die.h"
#include "base/h5.h"
#include "base/memory.h"
#include <assert.h>
#include <hdf5_hl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum kind { COUNT, REAL, REAL32, TOKENS32, KIND_TEXT, EVENT_TEXT };
enum { N_STATISTICS = 3, MAX_RANK = 3 };

/* Dimensions behind the rows; each has a scale of its name in its group. */
enum dimension { NONE, LAYER, EXPERT, STATISTIC };
static const char *const group_names[N_GROUPS] = {"steps", "experts", "timing", "validation",
                                                  "events"};

struct series {
    enum layout_group group;
    const char *name;
    enum kind kind;
    enum dimension dimensions[MAX_RANK - 1];
    const char *units, *long_name, *comment;
};

#define TIMED(phase, text, comment) \
    { GROUP_TIMING, phase, REAL, {STATISTIC}, "s", "time of a step spent " text, comment }
#define STEP(group)                                              \
    {                                                            \
        group, "step", COUNT, {NONE}, "1", "optimiser step",     \
            "-1: this row is not written; written last in a row" \
    }

static const struct series table[N_SERIES] = {
    [STEPS_TOKENS] = {GROUP_STEPS,
                      "tokens",
                      COUNT,
                      {NONE},
                      "1",
                      "tokens read since the start of the run",
                      "whole grid, without padding"},
    [STEPS_LOSS] = {GROUP_STEPS,
                    "loss",
                    REAL,
                    {NONE},
                    "1",
                    "cross-entropy of the step's targets",
                    "nats per target, weighted, without auxiliary terms"},
    [STEPS_AUX_LOSS] = {GROUP_STEPS,
                        "aux_loss",
                        REAL,
                        {NONE},
                        "1",
                        "load-balancing loss",
                        "mean over micro-batches, coefficient included"},
    [STEPS_Z_LOSS] = {GROUP_STEPS,
                      "z_loss",
                      REAL,
                      {NONE},
                      "1",
                      "router z-loss",
                      "mean over micro-batches, coefficient included"},
    [STEPS_GRAD_NORM] = {GROUP_STEPS,
                         "grad_norm",
                         REAL,
                         {NONE},
                         "1",
                         "norm of the gradient before clipping",
                         "each logical parameter once"},
    [STEPS_LEARNING_RATE] =
        {GROUP_STEPS, "learning_rate", REAL, {NONE}, "1", "learning rate of the step", NULL},
    [STEPS_STEP_S] =
        {GROUP_STEPS, "step_s", REAL, {NONE}, "s", "wall-clock time of the step", NULL},
    [STEPS_TOKENS_PER_S] = {GROUP_STEPS,
                            "tokens_per_s",
                            REAL,
                            {NONE},
                            "s-1",
                            "tokens per second",
                            "whole grid, without padding"},
    [STEPS_TFLOPS] = {GROUP_STEPS,
                      "tflops",
                      REAL,
                      {NONE},
                      "1e12 s-1",
                      "model floating-point operations per second and rank",
                      NULL},
    [STEPS_MFU] = {GROUP_STEPS,
                   "mfu",
                   REAL,
                   {NONE},
                   "1",
                   "model FLOPs utilisation",
                   "share of the device's peak; NaN where the peak is not known"},
    [STEPS_MEMORY_BYTES] = {GROUP_STEPS,
                            "memory_bytes",
                            REAL,
                            {NONE},
                            "byte",
                            "largest memory in use on a rank",
                            NULL},
    [STEPS_USEFUL_TOKENS] = {GROUP_STEPS,
                             "useful_tokens",
                             COUNT,
                             {NONE},
                             "1",
                             "targets of the step that counted",
                             "whole grid"},
    [STEPS_PADDED_TOKENS] = {GROUP_STEPS,
                             "padded_tokens",
                             COUNT,
                             {NONE},
                             "1",
                             "padding tokens of the step",
                             "whole grid"},
    [STEPS_STEP] = STEP(GROUP_STEPS),

    [EXPERTS_TOKENS] = {GROUP_EXPERTS,
                        "tokens",
                        TOKENS32,
                        {LAYER, EXPERT},
                        "1",
                        "tokens of the step routed to an expert",
                        "whole grid; 0 in rows that are not written"},
    [EXPERTS_ENTROPY] = {GROUP_EXPERTS,
                         "entropy",
                         REAL32,
                         {LAYER},
                         "1",
                         "entropy of the router's probabilities",
                         "nats, mean over the tokens of the step"},
    [EXPERTS_STEP] = STEP(GROUP_EXPERTS),

    [TIMING_DATA] = TIMED("data", "waiting for data", NULL),
    [TIMING_FORWARD] = TIMED("forward", "in the forward pass", "without exchange"),
    [TIMING_BACKWARD] = TIMED("backward", "in the backward pass", "without exchange"),
    [TIMING_EXCHANGE] = TIMED("exchange", "moving tokens between expert-parallel ranks", NULL),
    [TIMING_REDUCE] = TIMED("reduce", "summing gradients over ranks", NULL),
    [TIMING_OPTIMIZER] = TIMED("optimizer", "in the optimiser", NULL),
    [TIMING_CHECKPOINT] = TIMED("checkpoint", "saving", NULL),
    [TIMING_STEP] = STEP(GROUP_TIMING),

    [VALIDATION_TOKENS] = {GROUP_VALIDATION,
                           "tokens",
                           COUNT,
                           {NONE},
                           "1",
                           "tokens read for training when validation ran",
                           "whole grid, without padding"},
    [VALIDATION_LOSS] = {GROUP_VALIDATION,
                         "loss",
                         REAL,
                         {NONE},
                         "1",
                         "cross-entropy of held-out targets",
                         "nats per target, unweighted"},
    [VALIDATION_BITS_PER_BASE] = {GROUP_VALIDATION,
                                  "bits_per_base",
                                  REAL,
                                  {NONE},
                                  "bit",
                                  "bits per held-out target",
                                  "loss / ln 2"},
    [VALIDATION_STEP] = STEP(GROUP_VALIDATION),

    [EVENTS_TIME] = {GROUP_EVENTS,
                     "time",
                     REAL,
                     {NONE},
                     "seconds since 1970-01-01 00:00:00 UTC",
                     "time of the event",
                     NULL},
    [EVENTS_KIND] = {GROUP_EVENTS,
                     "kind",
                     KIND_TEXT,
                     {NONE},
                     "1",
                     "what happened",
                     "start, resume, checkpoint, preemption, skipped_step or overflow"},
    [EVENTS_TEXT] = {GROUP_EVENTS, "text", EVENT_TEXT, {NONE}, "1", "details in words", NULL},
    [EVENTS_STEP] = STEP(GROUP_EVENTS),
};

enum layout_series layout_step_of(enum layout_group g) {
    static const enum layout_series steps[N_GROUPS] = {STEPS_STEP, EXPERTS_STEP, TIMING_STEP,
                                                       VALIDATION_STEP, EVENTS_STEP};
    return steps[g];
}

/* A type to be closed; in memory native, in the file little-endian. */
static hid_t type_of(enum kind kind, int in_file) {
    static const size_t text_bytes[] = {
        [KIND_TEXT] = METRICS_KIND_BYTES, [EVENT_TEXT] = METRICS_TEXT_BYTES};
    hid_t text;
    switch (kind) {
    case COUNT:
        return H5Tcopy(in_file ? H5T_STD_I64LE : H5T_NATIVE_INT64);
    case REAL:
        return H5Tcopy(in_file ? H5T_IEEE_F64LE : H5T_NATIVE_DOUBLE);
    case REAL32:
        return H5Tcopy(in_file ? H5T_IEEE_F32LE : H5T_NATIVE_FLOAT);
    case TOKENS32:
        return H5Tcopy(in_file ? H5T_STD_U32LE : H5T_NATIVE_UINT32);
    default:
        text = H5Tcopy(H5T_C_S1);
        H5Tset_size(text, text_bytes[kind]);
        H5Tset_strpad(text, H5T_STR_NULLPAD);
        H5Tset_cset(text, H5T_CSET_UTF8);
        return text;
    }
}

/* The shape of a series, rows first; returns its rank. */
static int shape_of(const struct layout_size *size, enum layout_series s, hsize_t shape[MAX_RANK]) {
    const hsize_t lengths[] = {1, (hsize_t)size->n_layers, (hsize_t)size->n_experts, N_STATISTICS};
    int rank = 1;
    shape[0] = (hsize_t)size->rows[table[s].group];
    for (; rank < MAX_RANK && table[s].dimensions[rank - 1] != NONE; rank++)
        shape[rank] = lengths[table[s].dimensions[rank - 1]];
    return rank;
}

static hid_t file_access(void) {
    /* No sieve buffer: a row goes to the file as the bytes it has, not as the 64 KiB around it, so
     * that holes stay holes and every row is in the kernel's hands when H5Dwrite returns. */
    hid_t access = h5_file_access();
    H5Pset_sieve_buf_size(access, 0);
    return access;
}

/* Contiguous and allocated at once. The expert counts, by far the largest, are never filled: holes
 * until written. */
static hid_t creation_of(enum kind kind) {
    const double nan64 = NAN;
    const int64_t minus_one = -1;
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(list, H5D_CONTIGUOUS);
    H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(list, H5D_FILL_TIME_ALLOC);
    H5Pset_obj_track_times(list, 0);
    if (kind == COUNT) H5Pset_fill_value(list, H5T_NATIVE_INT64, &minus_one);
    if (kind == REAL || kind == REAL32) H5Pset_fill_value(list, H5T_NATIVE_DOUBLE, &nan64);
    if (kind == TOKENS32) H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
    return list;
}

static void create_series(struct layout *l, hid_t group, enum layout_series s) {
    hsize_t shape[MAX_RANK];
    hid_t type = type_of(table[s].kind, /*in_file=*/1), list = creation_of(table[s].kind);
    l->space[s] = H5Screate_simple(shape_of(&l->size, s, shape), shape, NULL);
    l->dataset[s] =
        H5Dcreate2(group, table[s].name, type, l->space[s], H5P_DEFAULT, list, H5P_DEFAULT);
    h5_describe(l->dataset[s], table[s].units, table[s].long_name);
    if (table[s].comment) h5_string(l->dataset[s], "comment", table[s].comment);
    H5Pclose(list);
    H5Tclose(type);
}

/* A dataset [n] that is written once. */
static hid_t create_fixed(hid_t group, const char *name, hid_t type, hsize_t n, const void *values,
                          const char *units, const char *long_name) {
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t dataset = H5Dcreate2(group, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    h5_describe(dataset, units, long_name);
    H5Sclose(space);
    return dataset;
}

/* A dimension scale that counts 0 .. n-1. */
static hid_t create_index(hid_t group, const char *name, int64_t n, const char *long_name) {
    int64_t *index = memory_alloc_array((size_t)n, sizeof *index);
    for (int64_t i = 0; i < n; i++) index[i] = i;
    hid_t scale = create_fixed(group, name, H5T_STD_I64LE, (hsize_t)n, index, "1", long_name);
    H5DSset_scale(scale, name);
    memory_free(index);
    return scale;
}

static hid_t create_statistics(hid_t group) {
    static const char names[N_STATISTICS][8] = {"minimum", "median", "maximum"};
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, sizeof names[0]);
    hid_t scale =
        create_fixed(group, "statistic", type, N_STATISTICS, names, "1", "over the ranks");
    H5DSset_scale(scale, "statistic");
    H5Tclose(type);
    return scale;
}

static hid_t create_scale(const struct layout *l, hid_t group, enum dimension d) {
    switch (d) {
    case LAYER:
        return create_index(group, "layer", l->size.n_layers, "layer, the first is 0");
    case EXPERT:
        return create_index(group, "expert", l->size.n_experts,
                            "expert, by its number in the whole grid");
    default:
        return create_statistics(group);
    }
}

static void create_markov(hid_t group, const double bits_per_base[MARKOV_ORDERS]) {
    hid_t order = create_index(group, "order", MARKOV_ORDERS, "order of a Markov chain");
    hid_t bits = create_fixed(group, "markov_bits_per_base", H5T_NATIVE_DOUBLE, MARKOV_ORDERS,
                              bits_per_base, "bit", "bits per held-out target of a Markov chain");
    h5_string(bits, "comment", "fitted on the training share; NaN: not computed");
    H5DSattach_scale(bits, order, 0);
    H5Dclose(bits);
    H5Dclose(order);
}

/* A group with its series, and its own scale for each of their dimensions: to attach a sibling's
 * scale breaks ncdump and xarray. */
static void create_group(struct layout *l, enum layout_group g) {
    hid_t group = H5Gcreate2(l->file, group_names[g], H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t scales[] = {
        [STATISTIC] = H5I_INVALID_HID, [LAYER] = H5I_INVALID_HID, [EXPERT] = H5I_INVALID_HID};
    enum layout_series step = layout_step_of(g);
    create_series(l, group, step);
    H5DSset_scale(l->dataset[step], "step");
    for (enum layout_series s = 0; s < N_SERIES; s++) {
        if (table[s].group != g || s == step) continue;
        create_series(l, group, s);
        H5DSattach_scale(l->dataset[s], l->dataset[step], 0);
        for (unsigned i = 0; i < MAX_RANK - 1 && table[s].dimensions[i] != NONE; i++) {
            hid_t *scale = &scales[table[s].dimensions[i]];
            if (*scale < 0) *scale = create_scale(l, group, table[s].dimensions[i]);
            H5DSattach_scale(l->dataset[s], *scale, i + 1);
        }
    }
    for (enum dimension d = LAYER; d <= STATISTIC; d++)
        if (scales[d] >= 0) H5Dclose(scales[d]);
    H5Gclose(group);
}

void layout_create(struct layout *l, const char *path, const struct layout_size *size,
                   const double markov_bits_per_base[MARKOV_ORDERS]) {
    hid_t access = file_access();
    l->size = *size;
    l->file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    h5_format(l->file, METRICS_FORMAT, METRICS_VERSION);
    h5_string(l->file, "Conventions", "CF-1.8");
    for (enum layout_group g = 0; g < N_GROUPS; g++) create_group(l, g);
    hid_t validation = H5Gopen2(l->file, group_names[GROUP_VALIDATION], H5P_DEFAULT);
    create_markov(validation, markov_bits_per_base);
    H5Gclose(validation);
}

/* Opens /group/name and sees that it has `rank` dimensions, whose lengths go to shape. */
static hid_t open_dataset(hid_t file, const char *path, enum layout_group g, const char *name,
                          int rank, hsize_t shape[MAX_RANK]) {
    hid_t dataset;
    char where[64];
    snprintf(where, sizeof where, "/%s/%s", group_names[g], name);
    H5E_BEGIN_TRY {
        dataset = H5Dopen2(file, where, H5P_DEFAULT);
    }
    H5E_END_TRY
    if (dataset < 0) die_user(EXIT_DATA, "%s: no dataset %s", path, where);
    hid_t space = H5Dget_space(dataset);
    int found = H5Sget_simple_extent_ndims(space);
    if (found != rank)
        die_user(EXIT_DATA, "%s: %s has %d dimensions, not %d", path, where, found, rank);
    H5Sget_simple_extent_dims(space, shape, NULL);
    H5Sclose(space);
    return dataset;
}

/* The lengths that the file has: rows from the groups' steps, layers and experts from the expert
 * counts. */
static void read_size(struct layout *l, const char *path) {
    hsize_t shape[MAX_RANK];
    for (enum layout_group g = 0; g < N_GROUPS; g++) {
        H5Dclose(open_dataset(l->file, path, g, "step", 1, shape));
        l->size.rows[g] = (int64_t)shape[0];
    }
    H5Dclose(open_dataset(l->file, path, GROUP_EXPERTS, "tokens", 3, shape));
    l->size.n_layers = (int64_t)shape[1], l->size.n_experts = (int64_t)shape[2];
}

void layout_open(struct layout *l, const char *path) {
    l->file = h5_open_user(path);
    h5_check_format(l->file, path, METRICS_FORMAT, METRICS_VERSION);
    read_size(l, path);
    for (enum layout_series s = 0; s < N_SERIES; s++) {
        hsize_t want[MAX_RANK] = {0}, found[MAX_RANK] = {0};
        int rank = shape_of(&l->size, s, want);
        l->dataset[s] = open_dataset(l->file, path, table[s].group, table[s].name, rank, found);
        l->space[s] = H5Dget_space(l->dataset[s]);
        if (memcmp(want, found, sizeof want) != 0)
            die_user(EXIT_DATA, "%s: /%s/%s has another shape than its group", path,
                     group_names[table[s].group], table[s].name);
    }
}

void layout_close(struct layout *l) {
    for (enum layout_series s = 0; s < N_SERIES; s++) {
        H5Sclose(l->space[s]);
        H5Dclose(l->dataset[s]);
    }
    H5Fclose(l->file);
}

/* Selects rows row .. row+n-1 in l->space[s]; returns a memory space of as many values. */
static hid_t select_rows(struct layout *l, enum layout_series s, int64_t row, int64_t n) {
    hsize_t start[MAX_RANK] = {(hsize_t)row}, count[MAX_RANK];
    int rank = shape_of(&l->size, s, count);
    assert(row >= 0 && n >= 0 && row + n <= l->size.rows[table[s].group]);
    count[0] = (hsize_t)n;
    H5Sselect_hyperslab(l->space[s], H5S_SELECT_SET, start, NULL, count, NULL);
    return H5Screate_simple(rank, count, NULL);
}

void layout_write(struct layout *l, enum layout_series s, int64_t row, int64_t n,
                  const void *values) {
    if (n == 0) return;
    hid_t memory = select_rows(l, s, row, n), type = type_of(table[s].kind, /*in_file=*/0);
    H5Dwrite(l->dataset[s], type, memory, l->space[s], H5P_DEFAULT, values);
    H5Tclose(type);
    H5Sclose(memory);
}

void layout_read(struct layout *l, enum layout_series s, int64_t row, int64_t n, void *values) {
    if (n == 0) return;
    hid_t memory = select_rows(l, s, row, n), type = type_of(table[s].kind, /*in_file=*/0);
    H5Dread(l->dataset[s], type, memory, l->space[s], H5P_DEFAULT, values);
    H5Tclose(type);
    H5Sclose(memory);
}

size_t layout_row_bytes(const struct layout *l, enum layout_series s) {
    hsize_t shape[MAX_RANK];
    hid_t type = type_of(table[s].kind, /*in_file=*/0);
    size_t bytes = H5Tget_size(type);
    H5Tclose(type);
    for (int i = shape_of(&l->size, s, shape) - 1; i > 0; i--) bytes *= (size_t)shape[i];
    return bytes;
}

int64_t layout_rows(struct layout *l, enum layout_group g, int64_t last_step) {
    int64_t n = l->size.rows[g], rows = 0;
    int64_t *steps = memory_alloc_array((size_t)n, sizeof *steps);
    layout_read(l, layout_step_of(g), 0, n, steps);
    while (rows < n && steps[rows] >= 0 && steps[rows] <= last_step) rows++;
    memory_free(steps);
    return rows;
}

void layout_read_markov(struct layout *l, double bits_per_base[MARKOV_ORDERS]) {
    hid_t dataset = H5Dopen2(l->file, "/validation/markov_bits_per_base", H5P_DEFAULT);
    hid_t space = H5Dget_space(dataset);
    for (int i = 0; i < MARKOV_ORDERS; i++) bits_per_base[i] = NAN;
    if (H5Sget_simple_extent_npoints(space) == MARKOV_ORDERS)
        H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, bits_per_base);
    H5Sclose(space);
    H5Dclose(dataset);
}
