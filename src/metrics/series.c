#include "config.h"
#include "metrics/series.h"
#include "model/low_statistics.h"

const char *const series_group_names[N_GROUPS] = {"steps", "experts", "timing", "validation",
                                                  "events", "eight_bits"};

#define TIMED(phase, text, comment) \
    { GROUP_TIMING, phase, REAL, {STATISTIC}, "s", "time of a step spent " text, comment }
#define SHARE(name, text, comment)                                                                 \
    {                                                                                              \
        GROUP_EIGHT_BITS, name, REAL, {LAYER, KIND}, "1", "share of the values that " text,        \
            comment, /*added=*/1                                                                   \
    }
#define EIGHT(name, text, comment)                                                                 \
    {                                                                                              \
        GROUP_EIGHT_BITS, name, REAL, {LAYER, KIND}, "1", text, comment, /*added=*/1               \
    }
#define STEP(group)                                              \
    {                                                            \
        group, "step", COUNT, {NONE}, "1", "optimiser step",     \
            "-1: this row is not written; written last in a row" \
    }

const struct series series_table[N_SERIES] = {
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
                    "nats/token",
                    "training loss",
                    "cross-entropy of the step's targets, weighted, without auxiliary terms"},
    [STEPS_AUX_LOSS] = {GROUP_STEPS,
                        "aux_loss",
                        REAL,
                        {NONE},
                        "1",
                        "load-balancing loss",
                        "mean over micro-batches, without its coefficient"},
    [STEPS_Z_LOSS] = {GROUP_STEPS,
                      "z_loss",
                      REAL,
                      {NONE},
                      "1",
                      "router z-loss",
                      "mean over micro-batches, without its coefficient"},
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
    [STEPS_MFU] =
        {GROUP_STEPS,
         "mfu",
         REAL,
         {NONE},
         "1",
         "model FLOPs utilisation",
         "tflops over what the rank reached in a matrix product at the start; NaN: not known"},
    [STEPS_MFU_6N] = {GROUP_STEPS,
                      "mfu_6n",
                      REAL,
                      {NONE},
                      "1",
                      "model FLOPs utilisation without attention's scores",
                      "as mfu, of 6 FLOPs per active parameter and token alone",
                      /*added=*/1},
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
                         "nats",
                         "entropy of the router's probabilities",
                         "mean over the tokens of the step"},
    [EXPERTS_STEP] = STEP(GROUP_EXPERTS),

    [TIMING_DATA] = TIMED("data", "waiting for data", NULL),
    [TIMING_FORWARD] = TIMED("forward", "in the forward pass", "without exchange"),
    [TIMING_BACKWARD] = TIMED("backward", "in the backward pass", "without exchange"),
    [TIMING_EXCHANGE] = TIMED("exchange", "moving tokens between expert-parallel ranks", NULL),
    [TIMING_REDUCE] = TIMED("reduce", "summing gradients over ranks", NULL),
    [TIMING_OPTIMIZER] = TIMED("optimizer", "in the optimiser", NULL),
    [TIMING_CHECKPOINT] = TIMED("checkpoint", "saving", NULL),
    [TIMING_TOTAL] = {GROUP_TIMING,
                      "total",
                      REAL,
                      {STATISTIC},
                      "s",
                      "time of a step",
                      "without a checkpoint behind it",
                      /*added=*/1},
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
                         "nats/token",
                         "held-out loss",
                         "cross-entropy of the held-out targets, unweighted"},
    [VALIDATION_BITS_PER_BASE] = {GROUP_VALIDATION,
                                  "bits_per_base",
                                  REAL,
                                  {NONE},
                                  "bits/base",
                                  "held-out loss",
                                  "bits per held-out target: loss / ln 2"},
    [VALIDATION_STEP] = STEP(GROUP_VALIDATION),

    [EVENTS_TIME] = {GROUP_EVENTS,
                     "time",
                     REAL,
                     {NONE},
                     "seconds since 1970-01-01 00:00:00 UTC",
                     "time of the event",
                     NULL},
    /* Characters, not strings of fixed length: those crash netCDF 4.9.0 (its issue 2159). */
    [EVENTS_KIND] = {GROUP_EVENTS,
                     "kind",
                     CHARACTER,
                     {KIND_LENGTH},
                     "1",
                     "what happened",
                     "start, resume, checkpoint, preemption, skipped_step, overflow, spike or stop"},
    [EVENTS_TEXT] = {GROUP_EVENTS,
                     "text",
                     CHARACTER,
                     {TEXT_LENGTH},
                     "1",
                     "details in words",
                     "UTF-8, cut at 240 bytes"},
    [EVENTS_STEP] = STEP(GROUP_EVENTS),

    [EIGHT_VALUES] = {GROUP_EIGHT_BITS,
                      "nonzero",
                      COUNT,
                      {LAYER, KIND},
                      "1",
                      "values that are not 0",
                      "of the step, whole grid; weights once; 0: the layer is not in eight bits",
                      /*added=*/1},
    [EIGHT_UNDERFLOW] = SHARE("underflow", "become 0", "of those that are not 0; NaN here and below: there are none"),
    [EIGHT_LARGEST] = SHARE("at_largest", "become the largest magnitude of the format",
                            "none is clipped: a scale follows from the largest magnitude of its block"),
    [EIGHT_NONFINITE] = SHARE("nonfinite", "are lost in blocks with a NaN or an infinity",
                              "such blocks count in nothing else but nonzero"),
    [EIGHT_AMAX] = EIGHT("amax", "largest magnitude", NULL),
    [EIGHT_LEAST_SCALE] = EIGHT("scale_min", "smallest scale of a block", NULL),
    [EIGHT_MOST_SCALE] = EIGHT("scale_max", "largest scale of a block", NULL),
    [EIGHT_ERROR] = EIGHT("error", "error of what is in eight bits",
                          "Frobenius norm of the difference over that of the values"),
    [EIGHT_STEP] = {GROUP_EIGHT_BITS,
                    "step",
                    COUNT,
                    {NONE},
                    "1",
                    "optimiser step",
                    "-1: this row is not written; written last in a row",
                    /*added=*/1},
};

enum series_id series_step_of(enum series_group g) {
    static const enum series_id steps[N_GROUPS] = {STEPS_STEP, EXPERTS_STEP, TIMING_STEP,
                                                   VALIDATION_STEP, EVENTS_STEP, EIGHT_STEP};
    return steps[g];
}

hid_t series_type(enum series_kind kind, int in_file) {
    hid_t character;
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
        character = H5Tcopy(H5T_C_S1);
        H5Tset_strpad(character, H5T_STR_NULLPAD);
        return character;
    }
}

int series_shape(const struct series_size *size, enum series_id s, hsize_t shape[MAX_RANK]) {
    const hsize_t lengths[N_DIMENSIONS] = {1,
                                           (hsize_t)size->n_layers,
                                           (hsize_t)size->n_experts,
                                           N_STATISTICS,
                                           METRICS_KIND_BYTES,
                                           METRICS_TEXT_BYTES,
                                           N_LOW_KINDS};
    int rank = 1;
    shape[0] = (hsize_t)size->rows[series_table[s].group];
    for (; rank < MAX_RANK && series_table[s].dimensions[rank - 1] != NONE; rank++)
        shape[rank] = lengths[series_table[s].dimensions[rank - 1]];
    return rank;
}
