/* Nothing to do: experts, ranks, whole expert-parallel groups and whole steps without tokens, on a
 * 2 x 2 grid, in memory that is poisoned before each step. And the other end: every token to every
 * expert. */
#include "config.h"
#include "base/memory.h"
#include "base/random.h"
#include "tap.h"
#include "train/step.h"
#include "trial.h"
#include <math.h>
#include <string.h>

enum { V = 13, E = 4, CAPACITY = 24 };

static const char base_deck[] =
    "num_train_steps: 1\nparallelism.shard: none\n"
    "dataset: {path: unused, alphabet: bytes, max_seq_length: 24, token_micro_batch_size: 24}\n"
    "optimizer: {weight_decay: 0, lr: 1e-2}\n"
    "router: {bias_rate: 1e-3, z_loss_coef: 0.1}\n"
    "model: {vocab_size: 13, hidden_size: 8, intermediate_size: 6, num_hidden_layers: 2,\n"
    "  num_attention_heads: 2, num_local_experts: 4, initializer_range: 0.3,\n"
    "  num_experts_per_tok: ";

static void fill(struct batch *b, int rank) {
    int32_t tokens[CAPACITY];
    for (int i = 0; i < CAPACITY; i++)
        tokens[i] = (int32_t)(random_bits(2, RANDOM_TEST, (uint64_t)(rank * CAPACITY + i)) % V);
    batch_append(b, tokens, tokens, NULL, 7);
    batch_append(b, tokens + 7, tokens + 7, NULL, CAPACITY - 7);
}

/* The selection bias outweighs every probability: all tokens go to the first A experts. */
static void favour(struct model *m) {
    for (int i = 0; i < m->s.L * E; i++) m->bias[i] = (float)(10 * (E - i % E));
}

static int all_finite(const float *x, size_t n);

/* Between tensors there may be anything. */
static int gradients_finite(const struct model *m) {
    int ok = 1;
    for (int i = 0; i < m->params->n; i++)
        ok &= all_finite(m->grads + m->params->list[i].offset, m->params->list[i].n);
    return ok;
}

static int all_finite(const float *x, size_t n) {
    int ok = 1;
    for (size_t i = 0; i < n; i++) ok &= isfinite(x[i]) != 0;
    return ok;
}

/* Experts from A on: no gradient, and weights as they were. The others: some gradient, if any
 * token. */
static int check_experts(const struct trial *t, const float *before, int has_tokens) {
    int n = E / t->g.ep_size, ok = 1;
    for (int i = t->m->params->n_dense; i < t->m->params->n; i++) {
        const struct param *p = &t->m->params->list[i];
        size_t size = p->n / (size_t)n;
        for (int e = 0; e < n; e++) {
            size_t at = p->offset + (size_t)e * size;
            const float *g = t->m->grads + at, *w = (const float *)t->m->weights + at;
            int used = has_tokens && t->g.ep_rank * n + e < t->m->s.A, zero = 1;
            for (size_t k = 0; k < size; k++) zero &= g[k] == 0;
            ok &= zero == !used;
            if (!used) ok &= memcmp(w, before + at, size * sizeof *w) == 0;
        }
    }
    return ok;
}

/* Bit r of `with`: rank r has tokens. The step's loss and norm must be those of one rank that has
 * them all, micro-batch by micro-batch. */
static void reference(const char *deck, unsigned with, double *loss, double *norm) {
    struct trial t;
    char *more = memory_format("%s\ngrad_acc_steps: 4\n", deck);
    trial_open(&t, MPI_COMM_SELF, 1, 1, more);
    favour(t.m);
    struct batch *batches[4];
    for (int r = 0; r < 4; r++) {
        batches[r] = batch_new(CAPACITY);
        if (with >> r & 1) fill(batches[r], r);
    }
    double W = step_gradients(t.o, (const struct batch *const *)batches, 4, NULL, 0);
    struct step_sums sums = step_read(t.o, W, NULL, 0);
    *loss = sums.loss, *norm = sums.grad_norm;
    for (int r = 0; r < 4; r++) batch_free(batches[r]);
    trial_close(&t);
    memory_free(more);
}

static void check(const char *what, int A, unsigned with) {
    struct trial t;
    double loss, norm;
    char *deck = memory_format("%s%d}\n", base_deck, A);
    reference(deck, with, &loss, &norm);
    trial_open(&t, MPI_COMM_WORLD, 2, 2, deck);
    struct batch *b = batch_new(CAPACITY);
    if (with >> t.g.rank & 1) fill(b, t.g.rank);
    favour(t.m);
    size_t size = t.m->params->size;
    float *before = memory_alloc_array(size, sizeof *before);
    memcpy(before, t.m->weights, size * sizeof *before);
    trial_poison(&t);
    struct step_sums sums =
        step_take(t.o, (const struct batch *const *)&b, 1, t.c->optimizer.lr, NULL, 0);
    int ok = sums.finite && gradients_finite(t.m);
    tap_ok(ok && all_finite(t.m->weights, size), "%s: finite", what);
    tap_ok(check_experts(&t, before, with != 0),
           "%s: experts without tokens have gradient 0 and keep their weights", what);
    double e = trial_error(sums.loss, loss), f = trial_error(sums.grad_norm, norm);
    tap_ok(e <= 1e-6 && f <= 1e-6, "%s: as on one rank: loss %.1e, norm %.1e", what, e, f);
    memory_free(before);
    batch_free(b);
    trial_close(&t);
    memory_free(deck);
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    check("all tokens to expert 0", 1, 0xf);
    check("all tokens to every expert", E, 0xf);
    check("rank 1 without tokens", 2, 0xd);
    check("an expert-parallel group without tokens", 2, 0x3);
    check("one rank with tokens, for the other's experts", 1, 0x2);
    check("no tokens at all", 2, 0);
    return tap_close();
}
