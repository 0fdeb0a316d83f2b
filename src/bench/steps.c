#include "config.h"
#include "bench/steps.h"
#include "base/die.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench/moe.h"
#include "data/loader.h"
#include "model/low.h"
#include "optim/schedule.h"
#include "train/run.h"
#include "train/step.h"

enum { WARM_UP = 3, N_NORMAL = 1048573 };

/* What steps are taken of. */
struct bed {
    struct model *model;
    struct optimizer *optimizer;
    struct batch **batches; /* [grad_acc_steps] */
    uint64_t drawn;         /* random tokens so far, of all ranks */
    int64_t step;           /* steps so far */
};

enum time { TIME_STEP, TIME_FORWARD, TIME_BACKWARD, TIME_EXCHANGE, TIME_OPTIMIZER, N_TIMES };

struct result {
    int n;                 /* steps */
    double times[N_TIMES]; /* medians, s */
    double waits;          /* of the host for the device, a step */
    double loss;           /* of the last step, nats */
    double tokens, flops;  /* of a step, of a rank */
};

/* All tensors take the same normal numbers in turn: model_init makes each its own, which takes a
 * minute for some billions. They are a prime number, so that no two rows are the same. */
static void fill_weights(struct model *m) {
    struct backend *be = m->be;
    float *normal = memory_alloc_array(N_NORMAL, sizeof *normal),
          *scaled = memory_alloc_array(N_NORMAL, sizeof *scaled),
          *there = be->alloc(be, N_NORMAL * sizeof *there), std = -1;
    size_t from = 0;
#pragma omp parallel for
    for (size_t k = 0; k < N_NORMAL; k++)
        normal[k] = random_normal(m->config->seed, RANDOM_INIT, k);
    for (int i = 0; i < m->params->n; i++) {
        if (m->params->list[i].std != std) {
            std = m->params->list[i].std;
            for (size_t k = 0; k < N_NORMAL; k++) scaled[k] = std > 0 ? std * normal[k] : 1;
            be->upload(be, there, scaled, N_NORMAL * sizeof *scaled);
        }
        for (size_t at = 0, n, all = m->shares[i].n; at < all; at += n) {
            n = all - at < N_NORMAL - from ? all - at : N_NORMAL - from;
            be->copy(be, model_master(m, i) + at, there + from, n * sizeof *there);
            from = (from + n) % N_NORMAL;
        }
    }
    model_publish(m);
    be->release(be, there);
    memory_free(scaled);
    memory_free(normal);
}

/* Documents of random tokens, of max_seq_length but for the last. */
static void fill_batch(struct bed *b, struct batch *batch) {
    const struct config *c = b->model->config;
    const struct grid *g = b->model->be->grid;
    batch_clear(batch);
    for (int left = batch->capacity; left > 0; left = batch->capacity - batch->n) {
        int n = c->dataset.max_seq_length < left ? (int)c->dataset.max_seq_length : left;
        int32_t *tokens = batch->tokens + batch->n;
        for (int i = 0; i < n; i++)
            tokens[i] = (int32_t)(random_bits(c->seed, RANDOM_TEST, b->drawn + (uint64_t)g->rank) %
                                  (uint64_t)c->model.vocab_size),
            b->drawn += (uint64_t)g->n_ranks;
        batch_append(batch, tokens, tokens, NULL, n);
    }
}

static void bed_open(struct bed *b, const struct config *c, struct backend *be) {
    int capacity = loader_capacity(c);
    *b = (struct bed){.model = model_new(c, be, capacity, /*with_gradients=*/1)};
    run_say_weights(b->model);
    b->optimizer = optimizer_new(b->model);
    b->batches = memory_alloc_array((size_t)c->grad_acc_steps, sizeof *b->batches);
    for (int64_t i = 0; i < c->grad_acc_steps; i++) b->batches[i] = batch_new(capacity);
    fill_weights(b->model);
    be->sealed = 1;
}

static void bed_close(struct bed *b) {
    struct backend *be = b->model->be;
    for (int64_t i = 0; i < b->model->config->grad_acc_steps; i++) batch_free(b->batches[i]);
    memory_free(b->batches);
    optimizer_free(b->optimizer);
    model_free(b->model);
    backend_close(be);
}

/* One step on new tokens; drawing them is not in the times. */
static struct step_sums take(struct bed *b, double times[N_TIMES]) {
    const struct config *c = b->model->config;
    int n = (int)c->grad_acc_steps;
    for (int i = 0; i < n; i++) fill_batch(b, b->batches[i]);
    double start = MPI_Wtime(), lr = schedule_rate(c, ++b->step);
    struct step_sums s =
        step_take(b->optimizer, (const struct batch *const *)b->batches, n, lr, NULL, 0);
    times[TIME_STEP] = MPI_Wtime() - start;
    times[TIME_FORWARD] = s.seconds[CLOCK_FORWARD];
    times[TIME_BACKWARD] = s.seconds[CLOCK_BACKWARD];
    times[TIME_EXCHANGE] = s.seconds[CLOCK_EXCHANGE];
    times[TIME_OPTIMIZER] = s.seconds[CLOCK_REDUCE] + s.seconds[CLOCK_OPTIMIZER];
    MPI_Allreduce(MPI_IN_PLACE, times, N_TIMES, MPI_DOUBLE, MPI_MAX, b->model->be->grid->world);
    if (!s.finite && b->model->be->grid->rank == 0)
        die_user(EXIT_NONFINITE, "bench: step %lld is not finite: loss %g, gradient norm %g",
                 (long long)b->step, s.loss, s.grad_norm);
    user_agree();
    return s;
}

static struct result measure(struct bed *b, double seconds) {
    struct result r = {0};
    double one[N_TIMES], *all[N_TIMES]; /* [n] */
    for (int i = 0; i < WARM_UP; i++) take(b, one);
    r.n = (int)(seconds / one[TIME_STEP]) + 1;
    for (int t = 0; t < N_TIMES; t++) all[t] = memory_alloc_array((size_t)r.n, sizeof *all[t]);
    const struct backend *be = b->model->be;
    double ranks = be->grid->n_ranks;
    int64_t waits = be->waits;
    for (int i = 0; i < r.n; i++) {
        struct step_sums s = take(b, one);
        for (int t = 0; t < N_TIMES; t++) all[t][i] = one[t];
        r.loss = s.loss, r.tokens = s.tokens / ranks;
        r.flops = shape_flops(&b->model->s, s.tokens, s.sum_len2) / ranks;
    }
    r.waits = (double)(be->waits - waits) / r.n;
    for (int t = 0; t < N_TIMES; t++) {
        r.times[t] = median(all[t], (size_t)r.n);
        memory_free(all[t]);
    }
    return r;
}

static void print_result(const struct result *r, const char *engine, double memory, FILE *csv) {
    const double *t = r->times;
    double per_s = r->tokens / t[TIME_STEP], rate = r->flops / t[TIME_STEP] / 1e12;
    printf("%-10s %6d %10.3f %11.*f %8.*f %10.3f %10.3f %10.3f %8.4f %8.2f %6.4g %9.3f\n", engine,
           r->n, t[TIME_STEP] * 1e3, per_s < 1e4 ? 1 : 0, per_s, rate < 1 ? 4 : 1, rate,
           t[TIME_FORWARD] * 1e3, t[TIME_BACKWARD] * 1e3, t[TIME_OPTIMIZER] * 1e3, r->loss,
           memory / 1e9, r->waits, t[TIME_EXCHANGE] * 1e3);
    fflush(stdout);
    if (csv)
        fprintf(csv, "%s,%d,%.0f,%.9g,%.9g,%.6g,%.9g,%.9g,%.9g,%.6f,%.0f,%.6g,%.9g\n", engine, r->n,
                r->tokens, t[TIME_STEP], per_s, rate, t[TIME_FORWARD], t[TIME_BACKWARD],
                t[TIME_OPTIMIZER], r->loss, memory, r->waits, t[TIME_EXCHANGE]);
}

/* A line of the table, by rank 0. Closes be. Returns 1 when `auto` became grouped: cublaslt serves
 * too, but in eight bits. */
static int run(const struct config *c, struct backend *be, double seconds, FILE *csv) {
    struct bed b;
    bed_open(&b, c, be);
    if (be->grid->rank == 0) printf("# %s\n", be->engines);
    struct result r = measure(&b, seconds);
    double memory = be->memory_peak(be);
    MPI_Allreduce(MPI_IN_PLACE, &memory, 1, MPI_DOUBLE, MPI_MAX, be->grid->world);
    if (be->grid->rank == 0) print_result(&r, moe_engine(be, c->engine.fused), memory, csv);
    int also = c->engine.experts == EXPERTS_AUTO && moe_grouped(be) && low_recipe(c) == LOW_NONE;
    bed_close(&b);
    return also;
}

static void print_heading(const struct config *c, const struct backend *be, FILE *csv) {
    printf(
        "# backend %s (%s)\n# deck %s on dp %d x ep %d: grad_acc_steps %lld, micro-batches of %d "
        "tokens, documents of %lld\n",
        be->name, be->details, c->deck_name, be->grid->dp_size, be->grid->ep_size,
        (long long)c->grad_acc_steps, loader_capacity(c), (long long)c->dataset.max_seq_length);
    printf("%-10s %6s %10s %11s %8s %10s %10s %10s %8s %8s %6s %9s\n", "# engine", "steps", "ms",
           "tokens/s", "TFLOP/s", "forward", "backward", "optimizer", "loss", "GB", "waits",
           "exchange");
    if (csv)
        fprintf(csv,
                "engine,steps,tokens,step_seconds,tokens_per_s,tflops,forward_seconds,"
                "backward_seconds,optimizer_seconds,loss,memory_bytes,waits,exchange_seconds\n");
}

void steps_run(const struct config *deck, const struct grid *g, double seconds, FILE *csv) {
    struct config c = *deck; /* its strings stay the deck's */
    run_check_params(&c, g);
    struct backend *be = run_backend(&c, g);
    if (g->rank == 0) print_heading(&c, be, csv);
    if (run(&c, be, seconds, csv)) {
        c.engine.experts = EXPERTS_CUBLASLT;
        run(&c, run_backend(&c, g), seconds, csv);
    }
}
