/* engine.reduce: gradients that travel beside the last backward pass, and weights beside AdamW,
 * make the same model to the bit as those that travel after them. What is asked for beside other
 * work is done here as late as it may be, when somebody waits for it: had anything been used, or
 * written to, too early, the model would be another one. */
#include "config.h"
#include "model/reduce.h"
#include "base/memory.h"
#include "base/random.h"
#include "tap.h"
#include "train/step.h"
#include "trial.h"
#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 40, STEPS = 3, V = 37, MOST = 512 };

static const char base_deck[] =
    "num_train_steps: 3\n"
    "dataset: {path: unused, alphabet: bytes, max_seq_length: 40, token_micro_batch_size: 40}\n"
    "router: {z_loss_coef: 0.1}\noptimizer: {lr: 1e-2, max_grad_norm: 1}\n"
    "model: {vocab_size: 37, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 3,\n"
    "  num_local_experts: 4, initializer_range: 0.3, router_aux_loss_coef: 0.5, ";

/* On four ranks a head of width 2 has fewer rows of keys than ranks, which are reduced at the end
 * as ever. (It is nothing for a GPU.) */
static const char *const variants[] = {
    "num_attention_heads: 4, num_key_value_heads: 1, head_dim: 2}\n",
    "num_attention_heads: 2, tie_word_embeddings: true}\nmemory.recompute: layer\n",
    "num_attention_heads: 2}\ntrain.freeze: ['*.layers.1.*', '*q_proj*', '*embed*']\n"};

/* ---- work beside, done late ---- */

static struct backend table;            /* the real entries */
static int late, asked;                 /* work is kept for later; between beside and back */
static double reduced, gathered, after; /* bytes that a ring sends: beside; of gradients, not */

struct task {
    int ticket;
    void *x;
    MPI_Comm comm;
    const size_t *counts;
    int gathers;
};
static struct task tasks[MOST];
static int n_tasks;

static void perform(struct backend *be, const struct task *t) {
    if (t->gathers)
        table.all_gather(be, t->comm, t->x, t->counts);
    else
        table.reduce_scatter(be, t->comm, t->x, t->counts);
}

static void ask(struct backend *be, struct task t) {
    int size;
    size_t sum = 0;
    MPI_Comm_size(t.comm, &size);
    for (int r = 0; r < size; r++) sum += t.counts[r];
    double bytes = (double)sum * sizeof(float) * (size - 1) / size;
    *(!asked ? &after : t.gathers ? &gathered : &reduced) += bytes;
    if (asked && late)
        tasks[n_tasks++] = t;
    else
        perform(be, &t);
}

static void late_reduce_scatter(struct backend *be, MPI_Comm comm, float *x, const size_t *counts) {
    ask(be, (struct task){-1, x, comm, counts, 0});
}

static void late_all_gather(struct backend *be, MPI_Comm comm, real_t *x, const size_t *counts) {
    ask(be, (struct task){-1, x, comm, counts, 1});
}

static void late_beside(struct backend *be) {
    if (!late) table.beside(be);
    asked = 1;
}

static void late_back(struct backend *be, int ticket) {
    if (!late) table.back(be, ticket);
    for (int i = 0; i < n_tasks; i++)
        if (tasks[i].ticket < 0) tasks[i].ticket = ticket;
    asked = 0;
}

static void late_await(struct backend *be, int ticket) {
    int n = 0;
    if (!late) table.await(be, ticket);
    for (int i = 0; i < n_tasks; i++)
        if (tasks[i].ticket == ticket) n = i + 1;
    for (int i = 0; i < n; i++) perform(be, &tasks[i]);
    memmove(tasks, tasks + n, (size_t)(n_tasks - n) * sizeof *tasks);
    n_tasks -= n;
}

static void watch(struct backend *be) {
    table = *be;
    reduced = gathered = after = 0, n_tasks = 0;
    be->reduce_scatter = late_reduce_scatter, be->all_gather = late_all_gather;
    be->beside = late_beside, be->back = late_back, be->await = late_await;
}

/* ---- runs ---- */

static void fill(struct batch *b, uint64_t at) {
    int32_t tokens[CAPACITY];
    for (int i = 0; i < CAPACITY; i++)
        tokens[i] = (int32_t)(random_bits(6, RANDOM_TEST, at * CAPACITY + (uint64_t)i) % V);
    if (at == 1) return; /* one is empty */
    batch_append(b, tokens, tokens, NULL, 11);
    batch_append(b, tokens + 11, tokens + 11, NULL, CAPACITY - 11);
}

struct outcome {
    double loss[STEPS], norm[STEPS];
    uint64_t hash;
    double reduced, gathered, after; /* in a step */
};

static struct outcome run(int dp, int ep, const char *variant, const char *reduce,
                          int micro_steps) {
    struct trial t;
    struct outcome o = {.hash = 0};
    struct batch *b[3];
    char *deck = memory_format("%s%sengine.reduce: %s\ngrad_acc_steps: %d\n", base_deck, variant,
                               reduce, micro_steps);
    trial_open(&t, MPI_COMM_WORLD, dp, ep, deck);
    watch(t.be);
    for (int i = 0; i < micro_steps; i++) {
        b[i] = batch_new(CAPACITY);
        fill(b[i], (uint64_t)(i * t.g.n_ranks + t.g.rank));
    }
    trial_poison(&t);
    for (int s = 0; s < STEPS; s++) {
        struct step_sums sums =
            step_take(t.o, (const struct batch *const *)b, micro_steps, t.c->optimizer.lr, NULL, 0);
        o.loss[s] = sums.loss, o.norm[s] = sums.grad_norm;
    }
    o.hash = trial_hash(&t);
    o.reduced = reduced / STEPS, o.gathered = gathered / STEPS, o.after = after / STEPS;
    for (int i = 0; i < micro_steps; i++) batch_free(b[i]);
    trial_close(&t);
    memory_free(deck);
    return o;
}

static int same(const struct outcome *a, const struct outcome *b) {
    return memcmp(a, b, offsetof(struct outcome, reduced)) == 0 && a->norm[0] > 0;
}

static void check(int dp, int ep, int variant, int micro_steps) {
    char *name = memory_format("%d x %d, variant %d, %d micro-batch%s", dp, ep, variant,
                               micro_steps, micro_steps == 1 ? "" : "es");
    struct outcome plain = run(dp, ep, variants[variant], "after", micro_steps),
                   beside = run(dp, ep, variants[variant], "beside", micro_steps), later;
    tap_ok(same(&plain, &beside), "%s: the same bits", name);
    tap_ok(plain.reduced == 0 && plain.gathered == 0 && beside.after == 0 && beside.reduced > 0 &&
               beside.reduced + beside.gathered == plain.after,
           "%s: %.0f bytes of gradients, %.0f of weights, all of them beside", name, beside.reduced,
           beside.gathered);
    late = 1;
    later = run(dp, ep, variants[variant], "beside", micro_steps);
    late = 0;
    tap_ok(same(&plain, &later), "%s: with all of it as late as may be, too", name);
    memory_free(name);
}

/* Where nothing travels, and where so little does that auto leaves it. */
static void check_wanted(int n_ranks) {
    static const char *const ways[] = {"beside", "after", "auto"};
    for (int k = 0; k < 3; k++) {
        struct trial t;
        char *deck = memory_format("%s%sengine.reduce: %s\n", base_deck, variants[1], ways[k]);
        trial_open(&t, MPI_COMM_WORLD, n_ranks, 1, deck);
        tap_ok(t.m->reduce_beside == (k == 0 && n_ranks > 1), "%s on %d rank%s", ways[k], n_ranks,
               n_ranks == 1 ? "" : "s");
        trial_close(&t);
        memory_free(deck);
    }
}

/* Elsewhere work beside is late by itself, and a model that is nothing for a GPU left out. */
static int on_cpu(void) {
    const char *name = getenv("TEST_BACKEND");
    return !name || strcmp(name, "cpu") == 0;
}

int main(int argc, char **argv) {
    int n_ranks;
    tap_open(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    check_wanted(n_ranks);
    for (int v = on_cpu() ? 0 : 1; v < 3 && n_ranks == 2; v++) check(2, 1, v, 2), check(1, 2, v, 1);
    if (n_ranks == 4) check(4, 1, 0, 2), check(2, 2, 1, 1);
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
