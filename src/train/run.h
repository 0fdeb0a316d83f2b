/* Everything a run has open, from the deck to the metrics. */
#ifndef REGULON_TRAIN_RUN_H
#define REGULON_TRAIN_RUN_H
#include "backend/backend.h"
#include "config/config.h"
#include "data/corpus.h"
#include "data/loader.h"
#include "data/markov.h"
#include "data/stream.h"
#include "checkpoint/saver.h"
#include "metrics/metrics.h"
#include "model/model.h"
#include "optim/optimizer.h"

/* Corpora and the streams cut from them. */
struct run_data {
    int n_sources;
    struct corpus **corpora;
    struct stream **train;          /* [n_sources] */
    double *weights;                /* [n_sources] */
    struct corpus *held_out_corpus; /* of validation.data_path, else NULL */
    struct stream **held_out;       /* [n_held_out] one of data_path, or one a source */
    int n_held_out;                 /* 0: nothing is held out */
    int64_t held_out_targets;       /* in one pass over them; counted on rank 0 only */
    struct markov_result markov;    /* of a run with one source; NaN for a mixture */
    struct markov *chains;          /* the same, rank 0; else NULL */
};

struct run {
    struct config *config;
    struct grid grid;
    struct backend *be;
    char *folder; /* the run folder */
    struct run_data data;
    struct loader *loader;
    struct model *model;
    struct optimizer *optimizer;
    struct metrics *metrics; /* rank 0 only */
    struct lock *lock;       /* of the folder, rank 0; NULL on the others */
    struct saver *saver;
    int failed_saves;      /* in a row */
    double slowest_step_s; /* of this start */
    int said_lead;         /* how early a job's signal must come */
    int64_t profiled_from; /* first step that a profiler records now; 0: it does not */
    struct counters start; /* what was done before this start */
    int validate_first;    /* the validation due after start.step has no row yet */
    char run_id[33];
    struct batch **batches; /* [grad_acc_steps] of a step */
    struct batch *scratch;  /* for validation */
    double peak_flops;      /* FLOP/s of this rank's matrix product, measured at start */
};

/* Packs what is not packed (rank 0), opens the corpora, cuts the streams, fits the Markov baseline
 * (rank 0) when there is held-out data. Collective over MPI_COMM_WORLD; user's mistakes end the run
 * (65, 78). */
void run_data_open(struct run_data *d, const struct config *c, const char *cache_folder);
void run_data_close(struct run_data *d);

/* The corpus that held-out stream i is of. */
const struct corpus *run_data_held_out(const struct run_data *d, int i);

/* parallelism.dp_size or, where that is auto, what this job's ranks give; die_user (78) when they
 * cannot be such a grid. Collective over MPI_COMM_WORLD. */
int run_dp_size(const struct config *c);

/* What the deck says of engines. */
struct backend_options run_options(const struct config *c);

/* What the deck says of parameters must fit them, else die_user (78). Rank 0. */
void run_check_params(const struct config *c, const struct grid *g);

/* The backend that the deck asks for or, with auto, the best there is; engines too. A recipe auto8
 * becomes what it is there. die_user (78) on rank 0. Collective. */
struct backend *run_backend(struct config *c, const struct grid *g);

/* What became of precision.fp8_weights, where it was asked for, as a line of the log. */
void run_say_weights(const struct model *m);

/* FLOP/s of this rank in a matrix product that fits the caches, the best of a few: what MFU is
 * relative to. All ranks at once: collective over world. */
double run_measure_peak(struct backend *be);

/* 1 when a thing done every `interval` steps (0: never) and at the end is due after `step`. */
int run_is_due(const struct config *c, int64_t step, int64_t interval);

/* 1 when what is logged every `interval` steps (0: never) is of this step: the first one, and those
 * that run_is_due has; and how many steps of a whole run that are. */
int run_is_logged(const struct config *c, int64_t step, int64_t interval);
int64_t run_logged_steps(const struct config *c, int64_t interval);

/* Opens a training run on dp_size x ep_size ranks in its folder, which exists; an earlier run's
 * files are moved away once deck and data are good. Collective over MPI_COMM_WORLD. The caller has
 * loaded the deck, which the run takes over. */
void run_open(struct run *r, struct config *c, int dp_size, int fresh);
void run_close(struct run *r);
#endif
