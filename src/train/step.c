#include "config.h"
#include "train/step.h"
#include "base/memory.h"
#include "grid/watchdog.h"
#include "model/balance.h"
#include <assert.h>
#include <math.h>

/* W of rule 1: the weight of all targets of the global batch; 0 counts as 1. */
static double sum_weights(struct model *m, const struct batch *const *batches, int n) {
    double W = 0;
    for (int i = 0; i < n; i++) W += batches[i]->weight;
    watchdog_phase(WATCHDOG_REDUCE, -1);
    m->be->sum_double(m->be, m->be->grid->world, &W, 1);
    return W > 0 ? W : 1;
}

/* The one reduction of the step. */
static struct step_sums reduce_sums(struct model *m, const struct batch *const *batches, int n,
                                    double W, double norm2, double *votes, int n_votes) {
    enum { LOSS, AUX, Z, NORM2, TOKENS, TARGETS, LEN2, N_SUMS, MOST_VOTES = 16 };
    struct backend *be = m->be;
    assert(n_votes <= MOST_VOTES);
    double x[N_SUMS + MOST_VOTES] = {
        [LOSS] = m->loss_sum, [AUX] = m->aux_sum, [Z] = m->z_sum, [NORM2] = norm2};
    for (int i = 0; i < n; i++) {
        x[TOKENS] += batches[i]->n;
        x[TARGETS] += (double)batches[i]->n_targets;
        for (int d = 0; d < batches[i]->n_documents; d++) {
            double length = batches[i]->cu_seqlens[d + 1] - batches[i]->cu_seqlens[d];
            x[LEN2] += length * length;
        }
    }
    for (int i = 0; i < n_votes; i++) x[N_SUMS + i] = votes[i];
    be->sum_double(be, be->grid->world, x, (size_t)(N_SUMS + n_votes));
    for (int i = 0; i < n_votes; i++) votes[i] = x[N_SUMS + i];
    be->sum_double(be, be->grid->world, m->entropy_sum, (size_t)m->s.L);
    be->sum_uint32(be, be->grid->world, m->counts_sum, (size_t)m->s.L * (size_t)m->s.E);
    struct step_sums s = {.loss = x[LOSS] / W,
                          .aux = x[AUX],
                          .z = x[Z],
                          .grad_norm = sqrt(x[NORM2]),
                          .tokens = x[TOKENS],
                          .targets = x[TARGETS],
                          .sum_len2 = x[LEN2]};
    s.finite = isfinite(s.loss) && isfinite(s.aux) && isfinite(s.z) && isfinite(s.grad_norm);
    return s;
}

struct step_sums step_gradients(struct model *m, struct optimizer *o,
                                const struct batch *const *batches, int n, double *votes,
                                int n_votes) {
    const struct config *c = m->config;
    double W = sum_weights(m, batches, n);
    double balance_weight =
        1.0 / (c->router.balance_over == BALANCE_WORLD ? n : n * m->be->grid->n_ranks);
    model_reset(m);
    for (int i = 0; i < n; i++) {
        model_forward(m, batches[i]);
        model_backward(m, 1 / W, balance_weight);
    }
    double start = MPI_Wtime();
    watchdog_phase(WATCHDOG_REDUCE, -1);
    double norm2 = optimizer_reduce(o);
    struct step_sums s = reduce_sums(m, batches, n, W, norm2, votes, n_votes);
    s.reduce_s = MPI_Wtime() - start;
    return s;
}

static void move_bias(struct model *m, double rate) {
    size_t n = (size_t)m->s.L * (size_t)m->s.E, bytes = n * sizeof(float);
    m->be->download(m->be, m->balance, m->bias, bytes);
    balance_move_bias(m->balance, m->counts_sum, rate, m->s.L, m->s.E);
    m->be->upload(m->be, m->bias, m->balance, bytes);
}

void step_apply(struct optimizer *o, const struct step_sums *sums, double lr) {
    const struct config *c = o->model->config;
    if (!sums->finite) return;
    watchdog_phase(WATCHDOG_OPTIMIZER, -1);
    double most = c->optimizer.max_grad_norm,
           scale = most > 0 ? most / (sums->grad_norm + 1e-6) : 1;
    optimizer_update(o, lr, scale < 1 ? scale : 1);
    if (c->router.bias_rate > 0) move_bias(o->model, c->router.bias_rate);
}
