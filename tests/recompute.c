/* memory.recompute: what a layer makes again is to the bit what its forward pass made, and so are
 * gradients and losses, in the memory that it says, with no exchange more. Micro-batches of several
 * documents, one that is empty on the last rank, one that is empty everywhere.
 *
 * cuDNN's attention backward does not repeat to the bit. Where two runs without recomputation
 * differ on a GPU, gradients are compared by their norm, what is made again still by its bits. */
#include "config.h"
#include "base/memory.h"
#include "base/random.h"
#include "model/recompute.h"
#include "model/stage.h"
#include "model/stash.h"
#include "tap.h"
#include "trial.h"
#include <math.h>
#include <string.h>
#include <xxhash.h>

enum { CAPACITY = 96, MICRO_STEPS = 4, L = 4, V = 64 };
static const double most_unrepeated = 1e-2; /* relative, Frobenius */

static const char base_deck[] =
    "num_train_steps: 1\n"
    "dataset: {path: unused, alphabet: bytes, max_seq_length: 64, token_micro_batch_size: 96}\n"
    "router: {z_loss_coef: 0.1, bias_rate: 0.1}\n"
    "model: {vocab_size: 64, hidden_size: 64, intermediate_size: 64, num_hidden_layers: 4,\n"
    "  num_attention_heads: 4, num_key_value_heads: 2, num_local_experts: 8,\n"
    "  initializer_range: 0.2, router_aux_loss_coef: 0.5}\n";

struct variant {
    const char *kind;
    int layers; /* that recompute; the deck says nothing of them where it is all */
};
static const struct variant variants[] = {{"none", L},  {"activation", L}, {"activation", 3},
                                          {"layer", L}, {"layer", 2},      {"layer", 1}};

/* What one pass over the micro-batches gave. */
struct result {
    float *grads;
    double sums[SUMS_OVERFLOW + 1];
    size_t n, bytes;  /* gradients; all that the model allocated */
    uint64_t sent;    /* token rows */
    int exchanges;    /* of rows: calls that are collective where there are several ranks */
    int64_t waits;    /* for the device, while enqueueing passes */
    uint64_t made[L]; /* what the backward pass of a layer finds, for the first micro-batch */
};

/* The backend's entries that exchange rows count their calls. */
static int exchanges;
static struct backend table;

static void counted_dispatch(struct backend *be, struct moe *m, real_t *rows, const real_t *x,
                             const struct routing *r, int N) {
    exchanges++;
    table.moe_dispatch(be, m, rows, x, r, N);
}

static void counted_combine(struct backend *be, struct moe *m, real_t *out, const real_t *y,
                            int N) {
    exchanges++;
    table.moe_combine(be, m, out, y, N);
}

static void counted_combine_backward(struct backend *be, struct moe *m, real_t *dy,
                                     const real_t *dout, int N) {
    exchanges += be->grid->ep_size > 1; /* alone it is a permutation */
    table.moe_combine_backward(be, m, dy, dout, N);
}

static void count_exchanges(struct backend *be) {
    table = *be, exchanges = 0;
    be->moe_dispatch = counted_dispatch;
    be->moe_combine = counted_combine;
    be->moe_combine_backward = counted_combine_backward;
}

static void fill(struct batch *b, int at, const struct grid *g) {
    static const int lengths[2][3] = {{37, 1, 58}, {5, 60, 17}};
    int32_t tokens[CAPACITY];
    float weights[CAPACITY];
    uint64_t k = (uint64_t)(at * g->n_ranks + g->rank) * 1000;
    if (at == 3 || (at == 2 && g->rank == g->n_ranks - 1)) return;
    for (int d = 0; d < 3; d++) {
        for (int i = 0; i < lengths[at % 2][d]; i++) {
            tokens[i] = (int32_t)(random_bits(3, RANDOM_TEST, k++) % V);
            weights[i] = (float)(0.25 + random_uniform(3, RANDOM_TEST, k++));
        }
        batch_append(b, tokens, tokens, weights, lengths[at % 2][d]);
    }
}

/* The loss of a model that only evaluates, whose layers share all that they can. */
static double evaluated(const struct trial *t, const struct batch *b) {
    struct backend *be = trial_backend(&t->g);
    struct model *m = model_new(t->c, be, CAPACITY, /*with_gradients=*/0);
    double loss = 0;
    model_init(m, t->c->seed);
    be->zero(be, m->sums, model_sums_bytes(m));
    model_forward(m, b);
    model_loss(m, m->sums, NULL);
    be->download(be, &loss, m->sums, sizeof loss);
    model_free(m);
    backend_close(be);
    return loss;
}

static void open_trial(struct trial *t, const struct variant *v, int dp, int ep,
                       const char *shard) {
    char layers[20] = "all";
    if (v->layers != L) snprintf(layers, sizeof layers, "%d", v->layers);
    char *deck = memory_format("%smemory: {recompute: %s, recompute_layers: %s}\n"
                               "parallelism.shard: %s\n",
                               base_deck, v->kind, layers, shard);
    trial_open(t, MPI_COMM_WORLD, dp, ep, deck);
    memory_free(deck);
}

/* Of what layer l has after recompute_layer. The experts' arrays only on one rank, where all
 * choices are rows of its own. */
static uint64_t hash_layer(const struct trial *t, int l) {
    const struct model *m = t->m;
    const struct layer_state *y = &m->layers[l];
    size_t N = (size_t)m->N, D = (size_t)m->s.D, HK = (size_t)(m->s.H * m->s.K),
           GK = (size_t)(m->s.G * m->s.K), F = (size_t)m->s.F, r = t->be->real_bytes,
           R = t->g.ep_size == 1 ? N * (size_t)m->s.A : 0;
    const struct {
        const void *p;
        size_t bytes;
    } arrays[] = {{y->x1, N * D * r},
                  {y->xn1, N * D * r},
                  {y->rstd1, N * sizeof(float)},
                  {y->qkv, N * (HK + 2 * GK) * r},
                  {y->attended, N * HK * r},
                  {y->lse, N * (size_t)m->s.H * sizeof(float)},
                  {y->x2, N * D * r},
                  {y->xn2, N * D * r},
                  {y->rstd2, N * sizeof(float)},
                  {y->rows, R * D * r},
                  {y->z, R * 2 * F * r}};
    XXH64_hash_t hash = 0;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        void *copy = memory_alloc(arrays[i].bytes);
        t->be->download(t->be, copy, arrays[i].p, arrays[i].bytes);
        hash = XXH3_64bits_withSeed(copy, arrays[i].bytes, hash);
        memory_free(copy);
    }
    return hash;
}

static struct result run(struct trial *t) {
    struct model *m = t->m;
    struct result r = {.n = m->sizes.grads, .bytes = trial_bytes(t)};
    struct batch *b = batch_new(CAPACITY);
    r.grads = memory_alloc_array(r.n, sizeof *r.grads);
    count_exchanges(t->be);
    model_reset(m);
    for (int i = 0; i < MICRO_STEPS; i++) {
        batch_clear(b);
        fill(b, i, &t->g);
        int64_t waits = t->be->waits;
        model_forward(m, b);
        r.waits += t->be->waits - waits;
        for (int l = L - 1; l >= 0 && i == 0; l--) {
            stage_weights(m, stage_layer(l));
            recompute_layer(m, l);
            r.made[l] = hash_layer(t, l);
        }
        waits = t->be->waits;
        if (i == 0) model_forward(m, b);
        model_backward(m, 1.0 / CAPACITY, 1.0 / MICRO_STEPS);
        r.waits += t->be->waits - waits;
    }
    stages_finish(m);
    t->be->download(t->be, r.grads, m->grads, r.n * sizeof *r.grads);
    t->be->download(t->be, r.sums, m->sums, sizeof r.sums);
    const uint64_t *sent = t->be->sent(t->be);
    for (int rank = 0; rank < t->g.ep_size; rank++) r.sent += sent[rank];
    r.exchanges = exchanges;
    batch_free(b);
    return r;
}

/* Bytes of z that a layer does not keep, where its array is that of all layers: what is saved there
 * is the room of those that recompute, and a room for one comes in. */
static int64_t not_stashed(const struct trial *t, int layers) {
    size_t R = t->be->moe_rows(t->be, t->m->moe), width = 2 * (size_t)t->m->s.F * t->be->real_bytes;
    int64_t all = (int64_t)stash_rows(t->m, L, R), rest = (int64_t)stash_rows(t->m, L - layers, R);
    return (all - rest - (int64_t)R) * (int64_t)width;
}

/* Bytes that `layers` layers do not keep, but for a room of each kind. */
static int64_t not_kept(const struct trial *t, int layers) {
    const struct shape *s = &t->m->s;
    size_t N = CAPACITY, D = (size_t)s->D, F = (size_t)s->F, HK = (size_t)(s->H * s->K),
           GK = (size_t)(s->G * s->K), R = t->be->moe_rows(t->be, t->m->moe),
           light = 2 * N * D * t->be->real_bytes, z = R * 2 * F * t->be->real_bytes,
           heavy = (N * (HK + 2 * GK) + N * HK + N * D) * t->be->real_bytes +
                   (N * (size_t)s->H + 2 * N) * sizeof(float);
    int64_t others = layers - 1;
    switch (t->c->memory.recompute) {
    case RECOMPUTE_NONE:
        return 0;
    case RECOMPUTE_ACTIVATION:
        return others * (int64_t)light;
    default:
        return others * (int64_t)(light + heavy) +
               (t->m->stashed ? not_stashed(t, layers) : others * (int64_t)z);
    }
}

/* |a - b| / |b|, Frobenius; NaN shows */
static double error(const struct result *a, const struct result *b) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a->n; i++) {
        double d = (double)a->grads[i] - (double)b->grads[i];
        difference += d * d, norm += (double)b->grads[i] * (double)b->grads[i];
    }
    return sqrt(difference / norm);
}

static int same_bits(const struct result *a, const struct result *b) {
    int same = memcmp(a->grads, b->grads, a->n * sizeof *a->grads) == 0 &&
               memcmp(a->sums, b->sums, sizeof a->sums) == 0;
    MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return same;
}

/* A GPU's host waits once a layer of each forward pass for the experts' counts, without the grouped
 * kernels, and once for those of the tokens that travel through NCCL. */
static int64_t expected_waits(const struct backend *be) {
    int waits = (be->row_unit == 1) + (be->engines && strstr(be->engines, "NCCL") != NULL);
    return strcmp(be->name, "cpu") == 0 ? 0 : waits * L * (MICRO_STEPS + 1);
}

/* *repeats: two runs alike have the same bits; the first variant is none, and finds out. */
static void check(const struct variant *v, int dp, int ep, const char *shard,
                  const struct result *none, int *repeats) {
    struct trial t;
    open_trial(&t, v, dp, ep, shard);
    struct result r = run(&t);
    int64_t saved = not_kept(&t, v->layers);
    int same = same_bits(&r, none);
    if (t.c->memory.recompute == RECOMPUTE_NONE) *repeats = same || strcmp(t.be->name, "cpu") == 0;
    tap_ok(memcmp(r.made, none->made, sizeof r.made) == 0,
           "%d x %d, %s in %d of %d layers: made again to the bit", dp, ep, v->kind, v->layers, L);
    tap_ok(*repeats ? same : error(&r, none) < most_unrepeated,
           "%d x %d, %s in %d: gradients and losses as with none%s (%.1e)", dp, ep, v->kind,
           v->layers, *repeats ? " to the bit" : "", error(&r, none));
    tap_ok((int64_t)r.bytes + saved == (int64_t)none->bytes,
           "%d x %d, %s in %d: %zu bytes, %lld fewer than none", dp, ep, v->kind, v->layers,
           r.bytes, (long long)saved);
    tap_ok(r.sent == none->sent && r.exchanges == none->exchanges,
           "%d x %d, %s in %d: %d exchanges, as many as with none", dp, ep, v->kind, v->layers,
           r.exchanges);
    tap_ok(r.waits == expected_waits(t.be), "%d x %d, %s in %d: the host waits %lld times", dp, ep,
           v->kind, v->layers, (long long)r.waits);
    memory_free(r.grads);
    trial_close(&t);
}

static void check_grid(int dp, int ep, const char *shard) {
    struct trial t;
    open_trial(&t, &variants[0], dp, ep, shard);
    tap_note("shard %s", shard);
    struct result none = run(&t);
    struct batch *b = batch_new(CAPACITY);
    double loss = 0, norm = 0;
    int repeats = 1;
    for (size_t i = 0; i < none.n; i++) norm += (double)none.grads[i] * (double)none.grads[i];
    tap_ok(isfinite(norm) && norm > 1e-4 && none.sums[SUMS_OVERFLOW] == 0,
           "%d x %d: gradients of norm %.3f%s", dp, ep, sqrt(norm),
           t.m->stashed ? ", a stash" : "");
    fill(b, 0, &t.g);
    model_reset(t.m);
    model_forward(t.m, b);
    model_loss(t.m, t.m->sums, NULL);
    t.be->download(t.be, &loss, t.m->sums, sizeof loss);
    double of_evaluation = evaluated(&t, b);
    tap_ok(loss > 0 && loss == of_evaluation,
           "%d x %d: a model without gradients has the same loss, %.6f", dp, ep, loss);
    batch_free(b);
    trial_close(&t);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        check(&variants[i], dp, ep, shard, &none, &repeats);
    memory_free(none.grads);
}

int main(int argc, char **argv) {
    int n_ranks;
    tap_open(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    for (int ep = 1; ep <= n_ranks; ep *= 2) {
        check_grid(n_ranks / ep, ep, "optimizer");
        if (n_ranks > 1) check_grid(n_ranks / ep, ep, "full");
    }
    return tap_close();
}
