/* Grid invariance: 20 steps on this number of ranks against the same global batches on one, and the
 * same grid twice. Each rank runs the reference by itself, on a grid of its own. The micro-batches
 * come from a stream with a padded last chunk; in one step one micro-batch is empty, in another all
 * are. */
#include "config.h"
#include "base/memory.h"
#include "data/loader.h"
#include "hand.h"
#include "tap.h"
#include "train/evaluate.h"
#include "train/step.h"
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEPS = 20,
    M = 4,
    L = 4,
    E = 8,
    CAPACITY = 96,
    ONE_EMPTY = 3,
    ALL_EMPTY = 11,
    EVALUATED = 5
};

static const char base_deck[] =
    "num_train_steps: 20\n"
    "model: {vocab_size: 131, hidden_size: 32, intermediate_size: 24, num_hidden_layers: 4,\n"
    "  num_attention_heads: 4, num_key_value_heads: 2, num_local_experts: 8,\n"
    "  num_experts_per_tok: 2, initializer_range: 0.1, router_aux_loss_coef: 0.1}\n"
    "router.z_loss_coef: 0.01\n"
    "optimizer: {lr: 1e-3, eps: 1e-6, max_grad_norm: 1}\n"
    "dataset: {path: unused, max_seq_length: 40, stride: 4, lowercase_weight: 0.5}\n";

/* How a run differs from the base. */
struct kind {
    const char *name, *keys;
    int world; /* balance_over world: the reference is one micro-batch of all ranks' tokens */
};
static const struct kind plain = {"plain", "", 0},
                         other = {"hf, balance over world, bias",
                                  "router: {aux_loss: hf, bias_rate: 0.01}\n", 1};

struct curve {
    struct {
        double loss, aux, z, norm;
        uint32_t counts[L * E];
    } steps[STEPS];
    double held_out, held_out_targets;
    float bias[L * E];
    uint64_t hash; /* of this rank's state */
};

/* `from` behind what `to` holds. */
static void concatenate(struct batch *to, const struct batch *from) {
    size_t n = (size_t)from->n * sizeof(int32_t);
    memcpy(to->tokens + to->n, from->tokens, n);
    memcpy(to->targets + to->n, from->targets, n);
    memcpy(to->weights + to->n, from->weights, n);
    memcpy(to->positions + to->n, from->positions, n);
    for (int d = 1; d <= from->n_documents; d++)
        to->cu_seqlens[to->n_documents + d] = to->n + from->cu_seqlens[d];
    to->n += from->n, to->n_documents += from->n_documents;
    to->n_targets += from->n_targets, to->weight += from->weight;
}

/* Micro-batches [n] of a step of this rank, `joined` of the loader's in each. */
static void draw(struct loader *l, const struct grid *g, int step, struct batch **to, int n,
                 int joined) {
    for (int i = 0; i < n * joined; i++) {
        int m = i * g->n_ranks + g->rank;
        const struct batch *b = loader_next(l);
        if (i % joined == 0) batch_clear(to[i / joined]);
        if (step == ALL_EMPTY || (step == ONE_EMPTY && m == M - 1)) continue;
        concatenate(to[i / joined], b);
    }
}

/* The run on comm as dp x ep; `joined` micro-batches of the order are one. */
static void run(struct curve *curve, MPI_Comm comm, int dp, int ep, const char *shard,
                const struct kind *kind, int joined, int steps) {
    const int64_t lengths[] = {211, 97, 160, 60, 150};
    const double weight = 1;
    struct corpus *corpus = hand_random(lengths, 5, "ACGTACGTACGGacgtN", 3);
    int n = M / (dp * ep) / joined;
    char *deck = memory_format(
        "%s%sparallelism.shard: %s\ngrad_acc_steps: %d\ndataset.token_micro_batch_size: %d\n%s",
        base_deck, kind->keys, shard, n, CAPACITY * joined,
        kind->world && joined == 1 ? "router.balance_over: world\n" : "");
    struct trial t;
    trial_open(&t, comm, dp, ep, deck);
    struct config order = *t.c; /* the loader's own micro-batches */
    order.grad_acc_steps = n * joined, order.dataset.token_micro_batch_size = CAPACITY;
    struct stream *stream = stream_open(corpus, &order, STREAM_TRAIN);
    struct loader *l = loader_open(&order, &stream, &weight, 1, t.g.rank, t.g.n_ranks, 0);
    struct batch *batches[M];
    for (int i = 0; i < n; i++) batches[i] = batch_new(CAPACITY * joined);
    memset(curve, 0, sizeof *curve);
    for (int s = 0; s < steps; s++) {
        draw(l, &t.g, s, batches, n, joined);
        trial_poison(&t);
        struct step_sums sums =
            step_take(t.o, (const struct batch *const *)batches, n, t.c->optimizer.lr, NULL, 0);
        curve->steps[s].loss = sums.loss, curve->steps[s].norm = sums.grad_norm;
        curve->steps[s].aux = sums.aux, curve->steps[s].z = sums.z;
        memcpy(curve->steps[s].counts, sums.counts, sizeof curve->steps[s].counts);
    }
    struct batch *scratch = batch_new(CAPACITY);
    struct evaluation e = evaluate_streams(t.m, &stream, 1, EVALUATED, scratch, NULL, NULL, NULL);
    curve->held_out = e.loss, curve->held_out_targets = e.targets;
    t.be->download(t.be, curve->bias, t.m->bias, sizeof curve->bias);
    curve->hash = trial_hash(&t);
    batch_free(scratch);
    for (int i = 0; i < n; i++) batch_free(batches[i]);
    loader_close(l);
    stream_close(stream);
    hand_free(corpus);
    trial_close(&t);
    memory_free(deck);
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* How many (layer, expert) choices differ. */
static int choices_differ(const uint32_t *a, const uint32_t *b) {
    int64_t n = 0;
    for (int i = 0; i < L * E; i++) n += llabs((long long)a[i] - (long long)b[i]);
    return (int)(n + 1) / 2;
}

/* Within 1e-6 as long as every step routed as the reference's, 1e-4 after a near-tie, which moves
 * single tokens. */
static void compare(const struct curve *c, const struct curve *reference, int steps,
                    const char *name) {
    enum { LOSS, NORM, BALANCE, N };
    double worst[2][N] = {{0}};
    int alike = steps, moved = 0;
    for (int s = 0; s < steps; s++) {
        int differ = choices_differ(c->steps[s].counts, reference->steps[s].counts);
        if (differ && s < alike) alike = s, moved = differ;
        double *w = worst[s >= alike];
        w[LOSS] = larger(w[LOSS], trial_error(c->steps[s].loss, reference->steps[s].loss));
        w[NORM] = larger(w[NORM], trial_error(c->steps[s].norm, reference->steps[s].norm));
        w[BALANCE] = larger(w[BALANCE], trial_error(c->steps[s].aux, reference->steps[s].aux));
        w[BALANCE] = larger(w[BALANCE], trial_error(c->steps[s].z, reference->steps[s].z));
    }
    tap_ok(alike > 0 && worst[0][LOSS] <= 1e-6 && worst[0][NORM] <= 1e-6 &&
               worst[0][BALANCE] <= 1e-6,
           "%s: within 1e-6 in %d steps that route alike: loss %.1e, norm %.1e, balance %.1e", name,
           alike, worst[0][LOSS], worst[0][NORM], worst[0][BALANCE]);
    if (alike < steps)
        tap_ok(moved <= 2 && worst[1][LOSS] <= 1e-4 && worst[1][NORM] <= 1e-4,
               "%s: %d choices moved in step %d; from there within 1e-4: loss %.1e, norm %.1e",
               name, moved, alike, worst[1][LOSS], worst[1][NORM]);
    double e = trial_error(c->held_out, reference->held_out);
    int same_bias = memcmp(c->bias, reference->bias, sizeof c->bias) == 0;
    tap_ok(e <= (alike < steps ? 1e-4 : 1e-6) &&
               c->held_out_targets == reference->held_out_targets && (same_bias || alike < steps),
           "%s: evaluation %.1e, over %.0f targets; the selection bias the same", name, e,
           c->held_out_targets);
}

static void check(int dp, int ep, const char *shard, const struct kind *kind, int steps) {
    static struct curve reference, curve;
    char *name = memory_format("%d x %d, shard %s, %s", dp, ep, shard, kind->name);
    run(&reference, MPI_COMM_SELF, 1, 1, "none", kind, kind->world ? dp * ep : 1, steps);
    run(&curve, MPI_COMM_WORLD, dp, ep, shard, kind, 1, steps);
    compare(&curve, &reference, steps, name);
    if (kind->world) tap_ok(curve.bias[0] != 0, "%s: the bias moved", name);
    memory_free(name);
}

static void check_twice(int dp, int ep, const char *shard, int steps) {
    static struct curve one, two;
    run(&one, MPI_COMM_WORLD, dp, ep, shard, &plain, 1, steps);
    run(&two, MPI_COMM_WORLD, dp, ep, shard, &plain, 1, steps);
    tap_ok(memcmp(&one, &two, sizeof one) == 0,
           "%d x %d, shard %s, twice: the same bits in losses, routing, weights and moments", dp,
           ep, shard);
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    int n_ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    /* Four ranks on two cores are slow (5 ms a collective): 20 steps without sharding, which needs
     * the fewest collectives, fewer of the rest; `invariance.np4 all`: 20 of all. */
    int few = n_ranks < 4 || argc > 1 ? STEPS : 3;
    for (int ep = 1; ep <= n_ranks; ep *= 2) {
        check(n_ranks / ep, ep, "none", &plain, STEPS);
        check(n_ranks / ep, ep, "optimizer", &plain, few);
        if (n_ranks < 4 || ep == 2 || argc > 1) check(n_ranks / ep, ep, "full", &plain, few);
        if (n_ranks < 4 || ep == 2 || argc > 1) check(n_ranks / ep, ep, "none", &other, few);
    }
    check_twice(n_ranks < 4 ? 1 : 2, n_ranks < 4 ? n_ranks : 2, "optimizer", few);
    if (n_ranks > 1) check_twice(2, n_ranks / 2, "full", few);
    return tap_close();
}
