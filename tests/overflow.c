/* router.capacity: a step whose rows do not fit into a rank's stash is not applied but done again,
 * and is then to the bit what it is with room for everything; the step before and the one after are
 * done once; with the capacity that it names it fits. In all kinds of memory.recompute. */
#include "config.h"
#include "base/memory.h"
#include "base/random.h"
#include "tap.h"
#include "train/step.h"
#include "trial.h"
#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 128, L = 4, E = 8, V = 64, MICRO_STEPS = 2, STEPS = 3 };

static const char base_deck[] =
    "num_train_steps: 4\n"
    "dataset: {path: unused, alphabet: bytes, max_seq_length: 64, token_micro_batch_size: 128}\n"
    "router.bias_rate: 1e-6\n"
    "model: {vocab_size: 64, hidden_size: 64, intermediate_size: 64, num_hidden_layers: 4,\n"
    "  num_attention_heads: 4, num_key_value_heads: 2, num_local_experts: 8,\n"
    "  initializer_range: 0.2}\n";

static const struct kind {
    const char *memory, *shard;
} kinds[] = {{"{recompute: layer, recompute_layers: 1}", "full"},
             {"{recompute: none}", "optimizer"},
             {"{recompute: activation}", "none"},
             {"{recompute: layer}", "optimizer"}};

/* Of a step. */
struct result {
    struct step_sums sums;
    double votes; /* their sum */
};

/* The second micro-batch of the last rank is empty. */
static void fill(struct batch *b, const struct grid *g, int at) {
    int32_t tokens[CAPACITY];
    uint64_t k = (uint64_t)(at * g->n_ranks + g->rank) * CAPACITY;
    batch_clear(b);
    if (at % MICRO_STEPS == 1 && g->rank == g->n_ranks - 1) return;
    for (int i = 0; i < CAPACITY; i++) tokens[i] = (int32_t)(random_bits(5, RANDOM_TEST, k++) % V);
    batch_append(b, tokens, tokens, NULL, CAPACITY);
}

/* The selection bias of all layers: 0, or such that the first rank's experts get all tokens of a
 * group; with several groups in the first of them alone. */
static void bias(struct trial *t, int skewed) {
    float values[L * E];
    skewed = skewed && t->g.dp_rank == 0;
    for (int i = 0; i < L * E; i++) values[i] = skewed && i % E < E / t->g.ep_size ? 10.0F : 0.0F;
    t->be->upload(t->be, t->m->bias, values, sizeof values);
}

static struct result take(struct trial *t, int step) {
    struct batch *batches[MICRO_STEPS];
    struct result r = {.votes = 1};
    for (int i = 0; i < MICRO_STEPS; i++) {
        batches[i] = batch_new(CAPACITY);
        fill(batches[i], &t->g, step * MICRO_STEPS + i);
    }
    bias(t, step == 1);
    r.sums = step_take(t->o, (const struct batch *const *)batches, MICRO_STEPS, t->c->optimizer.lr,
                       &r.votes, 1);
    for (int i = 0; i < MICRO_STEPS; i++) batch_free(batches[i]);
    return r;
}

static void open_trial(struct trial *t, int dp, int ep, const struct kind *kind, double capacity) {
    char *deck = memory_format("%srouter.capacity: %g\nmemory: %s\nparallelism.shard: %s\n",
                               base_deck, capacity, kind->memory, kind->shard);
    trial_open(t, MPI_COMM_WORLD, dp, ep, deck);
    memory_free(deck);
}

static int same_state(const struct trial *a, const struct trial *b) {
    int same = trial_hash(a) == trial_hash(b) && a->o->t == b->o->t;
    MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return same;
}

/* Returns the capacity that the crowded step named. */
static double check_steps(struct trial *small, struct trial *large, const char *name) {
    double named = 0;
    for (int step = 0; step < STEPS; step++) {
        struct result a = take(small, step), b = take(large, step);
        int crowded = step == 1;
        tap_ok((a.sums.capacity > small->c->router.capacity) == crowded && b.sums.capacity == 0,
               "%s: step %d is done %s (it needed capacity %g)", name, step,
               crowded ? "again" : "once", a.sums.capacity);
        tap_ok(a.sums.finite && a.sums.loss == b.sums.loss &&
                   a.sums.grad_norm == b.sums.grad_norm && a.sums.tokens == b.sums.tokens &&
                   a.votes == small->g.n_ranks && b.votes == a.votes && same_state(small, large),
               "%s: step %d is as with room for all, to the bit: loss %.6f", name, step,
               a.sums.loss);
        if (crowded) named = a.sums.capacity;
    }
    return named;
}

static void check(int dp, int ep, const struct kind *kind) {
    struct trial small, large, named;
    char *name = memory_format("%d x %d, %s, shard %s", dp, ep, kind->memory, kind->shard);
    open_trial(&small, dp, ep, kind, 1);
    open_trial(&large, dp, ep, kind, 1e6);
    /* shared memory comes in large pieces */
    int coarse = strcmp(small.be->name, "cpu") != 0;
    tap_ok(small.be->stashes && trial_bytes(&small) < trial_bytes(&large) + (size_t)coarse,
           "%s: %zu bytes, with room for all %zu", name, trial_bytes(&small), trial_bytes(&large));
    double capacity = check_steps(&small, &large, name);
    open_trial(&named, dp, ep, kind, capacity > 1 ? capacity : 1);
    take(&named, 0);
    struct result r = take(&named, 1);
    tap_ok(r.sums.finite && r.sums.capacity == 0, "%s: with capacity %g the step is done once",
           name, capacity);
    trial_close(&named);
    trial_close(&large);
    trial_close(&small);
    memory_free(name);
}

int main(int argc, char **argv) {
    int n_ranks;
    /* the CPU's rows as those of a GPU; attention that repeats to the bit */
    setenv("TEST_STASH", "1", 0);
    setenv("TEST_ROW_UNIT", "64", 0);
    setenv("TEST_ATTENTION", "own", 0);
    tap_open(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    /* four ranks on two cores are slow */
    size_t n_kinds = n_ranks > 2 ? 1 : sizeof kinds / sizeof *kinds;
    for (size_t i = 0; i < n_kinds; i++) check(n_ranks / 2, 2, &kinds[i]);
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
