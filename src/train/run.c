#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/revision.h"
#include "base/stop.h"
#include "base/text.h"
#include "checkpoint/lock.h"
#include "checkpoint/probe.h"
#include "checkpoint/folder.h"
#include "checkpoint/restore.h"
#include "checkpoint/weights.h"
#include "config/check.h"
#include "grid/watchdog.h"
#include "model/low.h"
#include "train/folder.h"
#include "train/origin.h"
#include "train/run.h"
#include <errno.h>
#include <hdf5.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

struct backend_options run_options(const struct config *c) {
    return (struct backend_options){.experts = c->engine.experts,
                                    .attention = c->engine.attention,
                                    .exchange = c->engine.exchange,
                                    .collectives = c->engine.collectives,
                                    .communication_sms = (int)c->engine.communication_sms,
                                    .exchange_blocks = (int)c->engine.exchange_blocks,
                                    .no_graph = !c->engine.cuda_graph,
                                    .unfused = !c->engine.fused,
                                    .deterministic = c->deterministic,
                                    .low_rows = c->precision.fp8_dispatch,
                                    .emulate = c->precision.emulate,
                                    .fp32 = c->precision.recipe == PRECISION_FP32};
}

/* Ends the run on every rank when one has a reason. Collective. */
static void refuse_backend(const struct config *c, const struct grid *g, char *mine) {
    char *problem = agree_problem(g, mine);
    if (problem && g->rank == 0)
        die_user(EXIT_CONFIG, "backend: %s: %s%s", c->backend == BACKEND_CUDA ? "cuda" : "auto",
                 problem, c->backend == BACKEND_CUDA ? "" : "; backend=cpu computes without a GPU");
    user_agree();
    memory_free(problem);
}

/* 1 for cuda, 0 for cpu. GPUs that were allocated and cannot be used are no reason to go on slowly.
 * Collective. */
static int choose_cuda(const struct config *c, const struct grid *g) {
    if (c->backend == BACKEND_CPU) return 0;
    int wanted = c->backend == BACKEND_CUDA || agree_any(g, gpus_allocated());
    int cuda = c->backend == BACKEND_CUDA || backend_exists("cuda");
    char *problem = cuda ? backend_refusal("cuda", g) : NULL;
    if (!cuda && wanted)
        problem =
            memory_string("Slurm gave this job GPUs, and this program was built without CUDA");
    if (!wanted && agree_any(g, problem != NULL)) {
        char *why = agree_problem(g, problem);
        log_info("backend", "no GPU: %s", why);
        memory_free(why);
        return 0;
    }
    refuse_backend(c, g, problem);
    return cuda;
}

struct backend *run_backend(struct config *c, const struct grid *g) {
    struct backend_options o = run_options(c);
    int cuda = choose_cuda(c, g);
    const char *name = cuda ? "cuda" : "cpu";
    int capability = backend_capability(name, g);
    char *problem = check_engines(c, cuda);
    if (!problem) problem = low_settle(c, capability);
    if (problem && g->rank == 0) die_user(EXIT_CONFIG, "%s", problem);
    user_agree();
    char *low = low_text(c, capability);
    if (low) log_info("precision", "%s", low);
    memory_free(low);
    return backend_open(name, g, &o);
}

double run_measure_peak(struct backend *be) {
    enum { TIMES = 6, PIECE = 512 * 512 };
    size_t N = (size_t)be->peak_side;
    float *host = memory_alloc_array(PIECE, sizeof *host);
    real_t *x = be->alloc(be, 3 * N * N * be->real_bytes), *w = real_at(be, x, N * N),
           *y = real_at(be, x, 2 * N * N);
    double best = 0;
    for (size_t i = 0; i < PIECE; i++) host[i] = (float)random_uniform(0, RANDOM_TEST, i) - 0.5f;
    for (size_t at = 0; at < 2 * N * N; at += PIECE)
        be->upload_real(be, real_at(be, x, at), host, PIECE);
    MPI_Barrier(be->grid->world);
    for (int i = 0; i < TIMES; i++) {
        double start = MPI_Wtime();
        be->matmul(be, y, x, w, (int)N, (int)N, (int)N);
        be->download(be, host, y, be->real_bytes); /* waits for it */
        double rate = 2.0 * (double)(N * N * N) / (MPI_Wtime() - start);
        if (rate > best) best = rate;
    }
    be->release(be, x);
    memory_free(host);
    return best;
}

static double training_tokens(const struct run_data *d) {
    double n = 0;
    for (int i = 0; i < d->n_sources; i++) n += (double)stream_tokens(d->train[i]);
    return n;
}

void run_say_weights(const struct model *m) {
    int n = 0;
    if (!m->config->precision.fp8_weights) return;
    for (int i = 0; i < m->params->n; i++) n += m->shares[i].from_master;
    if (n)
        log_info("precision", "fp8_weights: %d tensors of experts are not kept in BF16", n);
    else
        log_info("precision", "fp8_weights changes nothing: no experts have weights in eight bits "
                              "here");
}

static void first_lines(const struct run *r) {
    char buf[2][32], library[MPI_MAX_LIBRARY_VERSION_STRING];
    static const char *const shards[] = {"none", "optimizer", "full"};
    int n;
    MPI_Get_library_version(library, &n);
    library[strcspn(library, "\n")] = 0;
    const struct grid *g = &r->grid;
    log_info("regulon", "%s revision %s; %s; HDF5 %d.%d.%d", PACKAGE_STRING, revision_name(),
             library, H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
    log_info("grid", "%d ranks on %d node%s: dp_size %d x ep_size %d, shard %s", g->n_ranks,
             g->n_nodes, g->n_nodes == 1 ? "" : "s", g->dp_size, g->ep_size,
             shards[r->config->parallelism.shard]);
    if (g->ep_nodes > 1)
        log_info("grid", "tokens travel between nodes: an expert-parallel group is on %d of them",
                 g->ep_nodes);
    log_info("backend", "%s (%s), %.1f GFLOP/s a rank in a matrix product; %s", r->be->name,
             r->be->details, r->peak_flops / 1e9, r->be->engines);
    log_info("model", "%s parameters, %s active a token",
             text_count(buf[0], sizeof buf[0], params_count(r->model->params)),
             text_count(buf[1], sizeof buf[1], params_active(r->model->params, r->model->s.A)));
    log_info("data", "%s tokens in the training stream, %s targets held out",
             text_count(buf[0], sizeof buf[0], training_tokens(&r->data)),
             text_count(buf[1], sizeof buf[1], (double)r->data.held_out_targets));
    run_say_weights(r->model);
    if (!isnan(r->data.markov.bits_per_base[r->data.markov.best]))
        log_info("data", "Markov chains on the held-out targets: best order %d, %.4f bits/base",
                 r->data.markov.best, r->data.markov.bits_per_base[r->data.markov.best]);
}

static int is_metrics(const char *path) {
    char *format = h5_read_format(path);
    int is = format && strcmp(format, "regulon metrics") == 0;
    memory_free(format);
    return is;
}

static void open_metrics(struct run *r) {
    const struct config *c = r->config;
    char *path = file_join(r->folder, "metrics.h5");
    char *grid = memory_format("dp %d x ep %d", r->grid.dp_size, r->grid.ep_size);
    char *backend = memory_format("%s (%s)", r->be->name, r->be->details);
    struct metrics_run run = {
        .grid = grid,
        .backend = backend,
        .run_id = r->run_id,
        .n_layers = r->model->s.L,
        .n_experts = r->model->s.E,
        .n_rows = run_logged_steps(c, c->logger.frequency),
        .n_eight_bits_rows = low_statistics_wanted(c)
                                 ? run_logged_steps(c, c->precision.statistics_every_n_steps)
                                 : 0,
        .n_validation_rows =
            c->validation.enabled ? c->num_train_steps / c->validation.eval_interval + 2 : 0};
    memcpy(run.markov_bits_per_base, r->data.markov.bits_per_base, sizeof run.markov_bits_per_base);
    int goes_on = r->start.step > 0 && file_exists(path);
    if (goes_on && !is_metrics(path)) {
        char *aside = memory_format("%s.damaged", path);
        int moved = rename(path, aside) == 0;
        log_warn("metrics", "%s cannot be read; %s", path,
                 moved ? "it is now metrics.h5.damaged, and a new one begins" : strerror(errno));
        goes_on = 0;
        memory_free(aside);
    }
    r->metrics =
        goes_on ? metrics_resume(path, c, &run, r->start.step) : metrics_create(path, c, &run);
    memory_free(path);
    memory_free(grid);
    memory_free(backend);
}

void run_check_params(const struct config *c, const struct grid *g) {
    struct shape s = shape_of(c);
    struct params *p = params_new(&s, g, c);
    char *word = params_unmatched(p, c->train.freeze);
    int trained = 0;
    if (word) die_user(EXIT_CONFIG, "train.freeze: no parameter is called '%s'", word);
    for (int i = 0; i < p->n; i++) {
        const struct param *t = &p->list[i];
        trained += !params_match(t, c->train.freeze);
        if (t->n > INT_MAX) /* MPI counts in int */
            die_user(EXIT_CONFIG,
                     "%s has %zu elements on a rank, more than %d: spread the experts over "
                     "more ranks (parallelism.ep_size)",
                     t->name, t->n, INT_MAX);
    }
    if (!trained)
        die_user(EXIT_CONFIG, "train.freeze: '%s' leaves nothing to train", c->train.freeze);
    params_free(p);
}

/* A new run's id, or that of the run that goes on; the same on all ranks. */
static void choose_id(struct run *r, const struct shard_header *h) {
    struct timespec now; /* to the nanosecond: the jobs of an array start in the same second */
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t when = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    if (r->start.step > 0)
        snprintf(r->run_id, sizeof r->run_id, "%s", h->run_id);
    else
        snprintf(r->run_id, sizeof r->run_id, "%016llx",
                 (unsigned long long)random_bits(r->config->seed, RANDOM_ORDER, when));
    MPI_Bcast(r->run_id, sizeof r->run_id, MPI_CHAR, 0, r->grid.world);
}

/* Numbers of ranks next to n that can share M micro-batches on grids of this ep_size, as text; the
 * caller frees it. */
static char *near_ranks(int64_t M, int64_t ep, int64_t n) {
    int64_t below = n - 1, above = n + 1;
    while (below > 0 && (M % below || below % ep)) below--;
    while (above <= M && (M % above || above % ep)) above++;
    if (below > 0 && above <= M)
        return memory_format("%lld or %lld can", (long long)below, (long long)above);
    return below > 0 || above <= M
               ? memory_format("%lld can", (long long)(below > 0 ? below : above))
               : memory_string("with this parallelism.ep_size no number of ranks can");
}

/* The global batch of a run stays what it was on any grid: M = ranks x grad_acc_steps. */
static void keep_batch(struct run *r, const struct shard_header *h) {
    struct config *c = r->config;
    int n = r->grid.n_ranks;
    if (h->micro_batches % n != 0 && r->grid.rank == 0)
        die_user(EXIT_CONFIG,
                 "the run has %lld micro-batches a step, which %d ranks cannot share; %s",
                 (long long)h->micro_batches, n,
                 near_ranks(h->micro_batches, c->parallelism.ep_size, n));
    user_agree();
    if (h->micro_batches / n != c->grad_acc_steps)
        log_info("train",
                 "grad_acc_steps becomes %lld, so that a step keeps its %lld micro-batches",
                 (long long)(h->micro_batches / n), (long long)h->micro_batches);
    c->grad_acc_steps = h->micro_batches / n;
}

/* The weights of a new run: random, or another run's. Moments and counters are zero. */
static void begin_weights(struct run *r) {
    const char *from = r->config->checkpoint.init_from;
    char *folder = NULL;
    model_init(r->model, r->config->seed);
    if (!from) return;
    if (r->grid.rank == 0) {
        folder = checkpoint_find_weights(from);
        if (!folder)
            die_user(EXIT_DATA,
                     "checkpoint.init_from: %s holds no weights: neither a run folder with a "
                     "checkpoint or a final_model, nor a step folder, nor a Hugging Face folder",
                     from);
        origin_compare(r->config, from, folder);
    }
    user_agree();
    weights_load(r->model, folder);
    if (folder) log_info("checkpoint", "a new run, from the weights in %s", folder);
    memory_free(folder);
}

/* Goes on from the newest sound checkpoint of the folder, if that is wanted and there is one. */
static void restore(struct run *r, int resumes, struct shard_header *h) {
    if (!resumes) return;
    double start = MPI_Wtime();
    if (!checkpoint_restore(r->optimizer, r->folder, h)) {
        if (r->grid.rank == 0)
            die_user(EXIT_DATA,
                     "%s: no checkpoint in it is sound; --fresh starts anew and moves them aside",
                     r->folder);
        user_agree();
    }
    r->start = h->counters;
    if (r->grid.rank == 0) checkpoint_set_aside(r->folder, r->start.step);
    log_info("checkpoint",
             "goes on after step %lld (saved on dp %d x ep %d), checked and read in %.2f s",
             (long long)r->start.step, h->dp_size, h->ep_size, MPI_Wtime() - start);
    keep_batch(r, h);
}

/* status.json of a run that the watchdog ends. */
static void note_lost(void *context, int code, int64_t step, const char *seen) {
    const struct run *r = context;
    if (lock_is_ours(r->lock)) folder_write_status(r->config, code, step, seen);
}

/* Keys that are other than at the last start. Rank 0. */
static void note_changes(struct run *r, const char *changes) {
    char *text = memory_format("changed: %s", changes);
    log_info("train", "%s", text);
    metrics_event(r->metrics, EVENT_RESUME, r->start.step, text);
    memory_free(text);
}

int run_is_due(const struct config *c, int64_t step, int64_t interval) {
    return interval > 0 && (step % interval == 0 || step == c->num_train_steps);
}

int run_is_logged(const struct config *c, int64_t step, int64_t interval) {
    return interval > 0 && (step == 1 || run_is_due(c, step, interval));
}

int64_t run_logged_steps(const struct config *c, int64_t interval) {
    int64_t n = c->num_train_steps;
    return n / interval + (interval > 1) + (n > 1 && n % interval != 0);
}

void run_open(struct run *r, struct config *c, int dp_size, int fresh) {
    struct shard_header h;
    int resumes = 0;
    char *changes = NULL, *used = NULL;
    memset(r, 0, sizeof *r);
    r->config = c;
    r->folder = memory_string(c->checkpoint.ckpt_dir);
    grid_open(&r->grid, MPI_COMM_WORLD, dp_size, (int)c->parallelism.ep_size);
    watchdog_open(&r->grid, c->watchdog.timeout_s, note_lost, r);
    r->be = run_backend(c, &r->grid);
    if (c->profiler.start_step && !r->be->has_profiler && r->grid.rank == 0)
        die_user(EXIT_CONFIG,
                 "profiler.start_step: the run computes on the CPU, where nothing waits for it; a "
                 "profiler of CPUs records whole runs");
    user_agree();
    r->peak_flops = run_measure_peak(r->be);
    char *cache = file_join(r->folder, "cache");
    run_data_open(&r->data, c, cache);
    memory_free(cache);
    if (r->grid.rank == 0) run_check_params(c, &r->grid);
    user_agree();
    probe_run(&r->grid, c, !fresh && c->checkpoint.resume_from_checkpoint);
    if (r->grid.rank == 0) {
        used = folder_used_text(c); /* before what follows from this job is filled in */
        resumes = folder_begin(c, fresh, &changes);
    }
    user_agree();
    resumes = agree_int(&r->grid, resumes);
    c->parallelism.dp_size = dp_size; /* used.yaml keeps auto */
    int capacity = loader_capacity(c);
    r->model = model_new(c, r->be, capacity, /*with_gradients=*/1);
    r->optimizer = optimizer_new(r->model);
    if (!resumes) begin_weights(r);
    restore(r, resumes, &h);
    choose_id(r, &h);
    r->loader = loader_open(c, r->data.train, r->data.weights, r->data.n_sources, r->grid.rank,
                            r->grid.n_ranks, r->start.step);
    r->batches = memory_alloc_array((size_t)c->grad_acc_steps, sizeof *r->batches);
    for (int64_t i = 0; i < c->grad_acc_steps; i++) r->batches[i] = batch_new(capacity);
    r->scratch = batch_new(capacity);
    r->saver = saver_new(r->optimizer, r->folder, r->run_id, c->checkpoint.max_checkpoints,
                         c->checkpoint.keep_every_n_steps);
    if (r->grid.rank == 0) {
        first_lines(r);
        open_metrics(r);
        if (changes[0]) note_changes(r, changes);
        r->validate_first = r->start.step > 0 && c->validation.enabled &&
                            run_is_due(c, r->start.step, c->validation.eval_interval) &&
                            metrics_last_validation(r->metrics) < r->start.step;
        folder_write_used(c, used);
    }
    user_agree();
    r->validate_first = agree_int(&r->grid, r->validate_first);
    memory_free(changes);
    memory_free(used);
    r->be->sealed = 1;
    io_open();
}

void run_close(struct run *r) {
    watchdog_part(WATCHDOG_CLOSING, -1);
    io_close();
    metrics_close(r->metrics);
    saver_free(r->saver);
    loader_close(r->loader);
    batch_free(r->scratch);
    for (int64_t i = 0; i < r->config->grad_acc_steps; i++) batch_free(r->batches[i]);
    memory_free(r->batches);
    optimizer_free(r->optimizer);
    model_free(r->model);
    run_data_close(&r->data);
    backend_close(r->be);
    watchdog_close();
    grid_close(&r->grid);
    memory_free(r->folder);
    config_free(r->config);
}
