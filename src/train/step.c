#include "config.h"
#include "train/step.h"
#include "base/log.h"
#include "grid/watchdog.h"
#include "model/balance.h"
#include "model/stash.h"
#include <assert.h>
#include <math.h>

/* What the step adds to the model's sums. */
enum { TOKENS, TARGETS, LEN2, VOTES, MOST_VOTES = SUMS_ENTROPY - SUMS_STEP - VOTES };

static double sum_weights(const struct grid *g, const struct batch *const *batches, int n) {
    double W = 0;
    for (int i = 0; i < n; i++) W += batches[i]->weight;
    watchdog_phase(WATCHDOG_REDUCE, -1);
    agree_sum(g, &W, 1);
    return W > 0 ? W : 1;
}

/* What is known before the work is done. */
static void put_known(struct model *m, const struct batch *const *batches, int n,
                      const double *votes, int n_votes) {
    double x[VOTES + MOST_VOTES] = {0};
    assert(n_votes <= MOST_VOTES);
    for (int i = 0; i < n; i++) {
        x[TOKENS] += batches[i]->n;
        x[TARGETS] += (double)batches[i]->n_targets;
        for (int d = 0; d < batches[i]->n_documents; d++) {
            double length = batches[i]->cu_seqlens[d + 1] - batches[i]->cu_seqlens[d];
            x[LEN2] += length * length;
        }
    }
    for (int i = 0; i < n_votes; i++) x[VOTES + i] = votes[i];
    m->be->upload(m->be, m->sums + SUMS_STEP, x, sizeof x);
}

double step_gradients(struct optimizer *o, const struct batch *const *batches, int n,
                      const double *votes, int n_votes) {
    struct model *m = o->model;
    struct backend *be = m->be;
    const struct grid *g = be->grid;
    double W = sum_weights(g, batches, n);
    double balance_weight =
        1.0 / (m->config->router.balance_over == BALANCE_WORLD ? n : n * g->n_ranks);
    model_reset(m);
    put_known(m, batches, n, votes, n_votes);
    for (int i = 0; i < n; i++) {
        model_forward(m, batches[i]);
        m->last = i == n - 1;
        model_backward(m, 1 / W, balance_weight);
        m->last = 0;
    }
    watchdog_phase(WATCHDOG_REDUCE, -1);
    be->clock(be, CLOCK_REDUCE);
    optimizer_reduce(o, m->sums + SUMS_NORM2);
    /* the one reduction of the step */
    be->sum_double(be, g->world, m->sums, SUMS_ENTROPY + (size_t)m->s.L);
    be->sum_uint32(be, g->world, model_sums_counts(m, m->sums), (size_t)m->s.L * (size_t)m->s.E);
    be->clock(be, CLOCK_OTHER);
    return W;
}

void step_apply(struct optimizer *o, double lr) {
    struct model *m = o->model;
    struct backend *be = m->be;
    watchdog_phase(WATCHDOG_OPTIMIZER, -1);
    be->clock(be, CLOCK_OPTIMIZER);
    be->decide(be, o->factor, m->sums, SUMS_NORM2, m->sums + SUMS_NORM2,
               m->config->optimizer.max_grad_norm);
    optimizer_update(o, lr);
    be->clock(be, CLOCK_OTHER);
}

struct step_sums step_read(struct optimizer *o, double W, double *votes, int n_votes) {
    struct model *m = o->model;
    const double *x = m->host_sums, *step = x + SUMS_STEP;
    m->be->download(m->be, m->host_sums, m->sums, model_sums_bytes(m));
    struct step_sums s = {.loss = x[SUMS_LOSS] / W,
                          .aux = x[SUMS_AUX],
                          .z = x[SUMS_Z],
                          .grad_norm = sqrt(x[SUMS_NORM2]),
                          .tokens = step[TOKENS],
                          .targets = step[TARGETS],
                          .sum_len2 = step[LEN2],
                          .entropy = x + SUMS_ENTROPY,
                          .counts = model_sums_counts(m, m->host_sums)};
    s.finite = 1;
    for (int i = 0; i <= SUMS_NORM2; i++) s.finite = s.finite && isfinite(x[i]);
    s.overflowed = !isfinite(x[SUMS_OVERFLOW]);
    for (int i = 0; i < n_votes; i++) votes[i] = step[VOTES + i];
    m->be->clock_read(m->be, s.seconds);
    return s;
}

static void move_bias(struct model *m, const uint32_t *counts, double rate) {
    size_t bytes = (size_t)m->s.L * (size_t)m->s.E * sizeof(float);
    m->be->download(m->be, m->host_bias, m->bias, bytes);
    balance_move_bias(m->host_bias, counts, rate, m->s.L, m->s.E);
    m->be->upload(m->be, m->bias, m->host_bias, bytes);
}

void step_finish(struct optimizer *o, const struct step_sums *sums) {
    double rate = o->model->config->router.bias_rate;
    if (!sums->finite) return;
    o->t++;
    if (rate > 0) move_bias(o->model, sums->counts, rate);
}

static struct step_sums attempt(struct optimizer *o, const struct batch *const *batches, int n,
                                double lr, double *votes, int n_votes) {
    double W = step_gradients(o, batches, n, votes, n_votes);
    step_apply(o, lr);
    return step_read(o, W, votes, n_votes);
}

/* The router.capacity that the rank with most rows needed. Collective over world. */
static double needed_capacity(struct model *m) {
    double need[2], of_rows, of_z;
    m->be->download(m->be, need, m->stash_need, sizeof need);
    MPI_Allreduce(MPI_IN_PLACE, need, 2, MPI_DOUBLE, MPI_MAX, m->be->grid->world);
    of_rows = stash_capacity(m, m->stashed, need[0]);
    of_z = m->stashed_z ? stash_capacity(m, m->stashed_z, need[1]) : 0;
    return of_rows > of_z ? of_rows : of_z;
}

/* Nothing of the first attempt was applied; the votes are summed. */
static struct step_sums again(struct optimizer *o, const struct batch *const *batches, int n,
                              double lr, const struct step_sums *first) {
    struct model *m = o->model;
    double capacity = needed_capacity(m);
    log_info("step",
             "done again: the experts of a rank got more tokens than router.capacity %g has room "
             "for; %g would have had",
             m->config->router.capacity, capacity);
    m->be->rows_again = 1;
    struct step_sums sums = attempt(o, batches, n, lr, NULL, 0);
    m->be->rows_again = 0;
    sums.capacity = capacity;
    for (int i = 0; i < N_CLOCKS; i++) sums.seconds[i] += first->seconds[i];
    return sums;
}

struct step_sums step_take(struct optimizer *o, const struct batch *const *batches, int n,
                           double lr, double *votes, int n_votes) {
    struct step_sums sums = attempt(o, batches, n, lr, votes, n_votes);
    if (sums.overflowed) sums = again(o, batches, n, lr, &sums);
    step_finish(o, &sums);
    return sums;
}
