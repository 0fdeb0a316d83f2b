#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/revision.h"
#include "base/text.h"
#include "train/folder.h"
#include "train/run.h"
#include <hdf5.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef HAVE_CUDA
#include "device.h"
#endif

/* GPUs of this host that stay unused. */
static void report_devices(void) {
#ifdef HAVE_CUDA
    struct device_info d;
    for (int i = 0; i < device_count(); i++)
        if (device_describe(i, &d))
            log_info("backend", "device %d: %s: not used, this version computes on the CPU", i,
                     d.name);
#endif
}

int run_dp_size(const struct config *c) {
    int ranks, dp = (int)c->parallelism.dp_size;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (log_rank() == 0) {
        char *refusal = grid_refusal(ranks, &dp, (int)c->parallelism.ep_size);
        if (refusal) die_user(EXIT_CONFIG, "%s", refusal);
    }
    user_agree();
    MPI_Bcast(&dp, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return dp;
}

/* Did Slurm give this job GPUs? */
static int gpus_allocated(void) {
    const char *job = getenv("SLURM_JOB_GPUS"), *node = getenv("SLURM_GPUS_ON_NODE");
    return (job && *job) || (node && strcmp(node, "0") != 0 && *node);
}

struct backend *run_backend(const struct config *c, const struct grid *g) {
    if (g->rank == 0) {
        if (c->backend == BACKEND_CUDA)
            die_user(EXIT_CONFIG,
                     "backend: cuda: this version computes on the CPU only; use backend=cpu");
        if (c->backend == BACKEND_AUTO && gpus_allocated())
            die_user(EXIT_CONFIG,
                     "backend: auto: Slurm gave this job GPUs, which this version cannot "
                     "use; give them back, or set backend=cpu");
        report_devices();
    }
    user_agree();
    return backend_open("cpu", g);
}

/* FLOP/s of a matrix product that fits the caches, the best of a few: what MFU is relative to. All
 * ranks at once. */
static double measure_peak(struct backend *be) {
    enum { N = 512, TIMES = 6 };
    float *x = be->alloc(be, 3 * N * N * sizeof *x);
    double best = 0;
    for (size_t i = 0; i < 2 * N * N; i++) x[i] = (float)random_uniform(0, RANDOM_TEST, i) - 0.5f;
    MPI_Barrier(be->grid->world);
    for (int i = 0; i < TIMES; i++) {
        double start = MPI_Wtime();
        be->matmul(be, x + 2 * N * N, x, x + N * N, N, N, N);
        double rate = 2.0 * N * N * N / (MPI_Wtime() - start);
        if (rate > best) best = rate;
    }
    be->release(be, x);
    return best;
}

static double training_tokens(const struct run_data *d) {
    double n = 0;
    for (int i = 0; i < d->n_sources; i++) n += (double)stream_tokens(d->train[i]);
    return n;
}

static void first_lines(const struct run *r) {
    char buf[2][32], library[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    MPI_Get_library_version(library, &n);
    library[strcspn(library, "\n")] = 0;
    const struct grid *g = &r->grid;
    log_info("regulon", "%s revision %s; %s; HDF5 %d.%d.%d", PACKAGE_STRING, revision_name(),
             library, H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
    log_info("grid", "%d ranks on %d node%s: dp_size %d x ep_size %d, shard %s", g->n_ranks,
             g->n_nodes, g->n_nodes == 1 ? "" : "s", g->dp_size, g->ep_size,
             r->config->parallelism.shard == SHARD_NONE ? "none" : "optimizer");
    log_info("backend",
             "%s (%s), %.1f GFLOP/s a rank in a matrix product; experts loop, attention own, "
             "exchange mpi",
             r->be->name, r->be->details, r->peak_flops / 1e9);
    log_info("model", "%s parameters, %s active a token",
             text_count(buf[0], sizeof buf[0], shape_parameters(&r->model->s)),
             text_count(buf[1], sizeof buf[1], shape_active_parameters(&r->model->s)));
    log_info("data", "%s tokens in the training stream, %s targets held out",
             text_count(buf[0], sizeof buf[0], training_tokens(&r->data)),
             text_count(buf[1], sizeof buf[1], (double)r->data.held_out_targets));
    if (!isnan(r->data.markov.bits_per_base[r->data.markov.best]))
        log_info("data", "Markov chains on the held-out targets: best order %d, %.4f bits/base",
                 r->data.markov.best, r->data.markov.bits_per_base[r->data.markov.best]);
}

static void open_metrics(struct run *r) {
    const struct config *c = r->config;
    char *path = file_join(r->folder, "metrics.h5");
    char *grid = memory_format("dp %d x ep %d", r->grid.dp_size, r->grid.ep_size);
    char *backend = memory_format("%s (%s)", r->be->name, r->be->details);
    char *id = memory_format(
        "%016llx", (unsigned long long)random_bits(c->seed, RANDOM_ORDER, (uint64_t)time(NULL)));
    struct metrics_run run = {
        .grid = grid,
        .backend = backend,
        .run_id = id,
        .n_layers = r->model->s.L,
        .n_experts = r->model->s.E,
        /* step 1, every so many, and the last */
        .n_rows = c->num_train_steps / c->logger.frequency + (c->logger.frequency > 1) +
                  (c->num_train_steps > 1 && c->num_train_steps % c->logger.frequency != 0),
        .n_validation_rows =
            c->validation.enabled ? c->num_train_steps / c->validation.eval_interval + 2 : 0};
    memcpy(run.markov_bits_per_base, r->data.markov.bits_per_base, sizeof run.markov_bits_per_base);
    r->metrics = metrics_create(path, c, &run);
    memory_free(path);
    memory_free(grid);
    memory_free(backend);
    memory_free(id);
}

/* MPI counts in int, so a rank's part of a tensor must fit one. The same on all ranks: rank 0
 * speaks. */
static void check_sizes(const struct run *r) {
    struct shape s = shape_of(r->config);
    struct params *p = params_new(&s, &r->grid, r->config);
    for (int i = 0; r->grid.rank == 0 && i < p->n; i++)
        if (p->list[i].n > INT_MAX)
            die_user(EXIT_CONFIG,
                     "%s has %zu elements on a rank, more than %d: spread the experts over "
                     "more ranks (parallelism.ep_size)",
                     p->list[i].name, p->list[i].n, INT_MAX);
    user_agree();
    params_free(p);
}

void run_open(struct run *r, struct config *c, int dp_size) {
    memset(r, 0, sizeof *r);
    r->config = c;
    r->folder = memory_string(c->checkpoint.ckpt_dir);
    grid_open(&r->grid, MPI_COMM_WORLD, dp_size, (int)c->parallelism.ep_size);
    r->be = run_backend(c, &r->grid);
    r->peak_flops = measure_peak(r->be);
    char *cache = file_join(r->folder, "cache");
    run_data_open(&r->data, c, cache);
    memory_free(cache);
    if (r->grid.rank == 0) folder_begin(c);
    user_agree();
    c->parallelism.dp_size = dp_size; /* used.yaml keeps auto */
    check_sizes(r);
    int capacity = loader_capacity(c);
    r->model = model_new(c, r->be, capacity, /*with_gradients=*/1);
    model_init(r->model, c->seed);
    r->optimizer = optimizer_new(r->model);
    r->loader = loader_open(c, r->data.train, r->data.weights, r->data.n_sources, r->grid.rank,
                            r->grid.n_ranks, 0);
    r->batches = memory_alloc_array((size_t)c->grad_acc_steps, sizeof *r->batches);
    for (int64_t i = 0; i < c->grad_acc_steps; i++) r->batches[i] = batch_new(capacity);
    r->scratch = batch_new(capacity);
    if (r->grid.rank == 0) {
        first_lines(r);
        open_metrics(r);
    }
}

void run_close(struct run *r) {
    metrics_close(r->metrics);
    loader_close(r->loader);
    batch_free(r->scratch);
    for (int64_t i = 0; i < r->config->grad_acc_steps; i++) batch_free(r->batches[i]);
    memory_free(r->batches);
    optimizer_free(r->optimizer);
    model_free(r->model);
    run_data_close(&r->data);
    backend_close(r->be);
    grid_close(&r->grid);
    memory_free(r->folder);
    config_free(r->config);
}
