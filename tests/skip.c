/* A step whose loss is not finite on one rank is skipped on all: weights, moments, Adam's t and the
 * selection bias stay to the byte, and the run goes on as if the step had not been. */
#include "config.h"
#include "base/memory.h"
#include "base/random.h"
#include "tap.h"
#include "train/step.h"
#include "trial.h"
#include <math.h>

enum { CAPACITY = 24, V = 13 };

static const char base_deck[] =
    "num_train_steps: 4\n"
    "dataset: {path: unused, alphabet: bytes, max_seq_length: 24, token_micro_batch_size: 24}\n"
    "router.bias_rate: 1e-3\n"
    "model: {vocab_size: 13, hidden_size: 8, intermediate_size: 6, num_hidden_layers: 2,\n"
    "  num_attention_heads: 2, num_local_experts: 4, initializer_range: 0.3}\n";

enum fault { NONE, WEIGHT_NAN, WEIGHT_INFINITE };

static void fill(struct batch *b, int step, enum fault fault) {
    int32_t tokens[CAPACITY];
    float weights[CAPACITY];
    for (int i = 0; i < CAPACITY; i++) {
        tokens[i] = (int32_t)(random_bits(2, RANDOM_TEST, (uint64_t)(step * CAPACITY + i)) % V);
        weights[i] = 1;
    }
    if (fault) weights[CAPACITY / 2] = fault == WEIGHT_NAN ? NAN : INFINITY;
    batch_clear(b);
    batch_append(b, tokens, tokens, weights, CAPACITY);
}

static int one_step(struct trial *t, struct batch *b, int step, enum fault fault) {
    fill(b, step * t->g.n_ranks + t->g.rank, t->g.rank == t->g.n_ranks - 1 ? fault : NONE);
    return step_take(t->o, (const struct batch *const *)&b, 1, t->c->optimizer.lr, NULL, 0).finite;
}

static void check(int dp, int ep, const char *shard) {
    struct trial t, without;
    struct batch *b = batch_new(CAPACITY);
    char *deck = memory_format("%sparallelism.shard: %s\n", base_deck, shard);
    trial_open(&t, MPI_COMM_WORLD, dp, ep, deck);
    trial_open(&without, MPI_COMM_WORLD, dp, ep, deck);
    int ok = one_step(&t, b, 0, NONE) && one_step(&t, b, 1, NONE);
    uint64_t before = trial_hash(&t);
    for (enum fault f = WEIGHT_NAN; f <= WEIGHT_INFINITE; f++) {
        int applied = one_step(&t, b, 2, f);
        tap_ok(ok && !applied && trial_hash(&t) == before && t.o->t == 2,
               "%d x %d, shard %s: a step with a loss of %s on one rank changes nothing", dp, ep,
               shard, f == WEIGHT_NAN ? "NaN" : "infinity");
    }
    ok = one_step(&t, b, 3, NONE) && one_step(&without, b, 0, NONE) &&
         one_step(&without, b, 1, NONE) && one_step(&without, b, 3, NONE);
    tap_ok(ok && trial_hash(&t) == trial_hash(&without) && trial_hash(&t) != before,
           "%d x %d, shard %s: the next step is as if it had not been", dp, ep, shard);
    trial_close(&without);
    trial_close(&t);
    batch_free(b);
    memory_free(deck);
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    check(2, 1, "optimizer");
    check(1, 2, "none");
    check(2, 1, "full");
    return tap_close();
}
