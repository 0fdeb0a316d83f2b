/* Eight bits in a model: which keys are served where, which products of a step are in it, copies of
 * weights that follow them, and a NaN that gets through it. On two ranks: the copies. */
#include "config.h"
#include "model/low_copies.h"
#include "base/memory.h"
#include "base/random.h"
#include "model/low.h"
#include "tap.h"
#include "train/step.h"
#include "trial.h"
#include <math.h>
#include <string.h>

static const struct recipe {
    enum low low;
    const char *name;
} recipes[] = {{LOW_FP8_BLOCK, "fp8_block"}, {LOW_MXFP8, "mxfp8"}};

enum { V = 13, CAPACITY = 48 };

static struct batch *open_step(struct trial *t, const struct recipe *r, int dp_size,
                               const char *keys) {
    int32_t tokens[CAPACITY];
    float weights[CAPACITY];
    struct batch *b = batch_new(CAPACITY);
    char *deck = memory_format(
        "num_train_steps: 4\nprecision: {recipe: %s, emulate: true%s}\n"
        "dataset: {path: unused, alphabet: bytes, max_seq_length: 48, token_micro_batch_size: 48}\n"
        "model: {vocab_size: 13, hidden_size: 40, intermediate_size: 33, num_hidden_layers: 4,\n"
        "  num_attention_heads: 2, num_local_experts: 4, initializer_range: 0.3}\n",
        r->name, keys);
    trial_open(t, MPI_COMM_WORLD, dp_size, 1, deck);
    for (int i = 0; i < CAPACITY; i++)
        tokens[i] = (int32_t)(random_bits(2, RANDOM_TEST, (uint64_t)i) % V), weights[i] = 1;
    batch_clear(b);
    batch_append(b, tokens, tokens, weights, CAPACITY);
    memory_free(deck);
    return b;
}

/* The real products, and how many of them were asked for by recipe. */
enum { MATMUL, MATMUL_DX, MATMUL_DW, UP, DOWN, DOWN_BACKWARD, UP_BACKWARD, HEAD, N_CALLS };
static struct backend real;
static int calls[N_CALLS][LOW_MXFP8 + 1];

/* Copies of weights, as a GPU has them in eight bits: here their first values. Entries by place. */
enum { COPY_BYTES = 64, MOST_COPIES = 64 };
static struct {
    const real_t *w;
    const void *copy;
} copies[MOST_COPIES];
static int n_copies, n_made, n_taken, n_old;

static size_t low_bytes(struct backend *be, int n, int N, int K) {
    (void)be;
    return n * N * K > 0 ? COPY_BYTES : 0;
}
static void low_weights(struct backend *be, void *copy, const real_t *w, int n, int N, int K) {
    int i = 0;
    (void)be;
    n_made += n * N * K > 0;
    while (i < n_copies && copies[i].w != w) i++;
    if (i == n_copies) n_copies++;
    memcpy(copy, w, COPY_BYTES);
    copies[i].w = w, copies[i].copy = copy;
}
/* A product takes w: there must be a copy of what stands there now. */
static void take(const struct backend *be, const real_t *w) {
    int i = 0;
    if (!n_copies || be->low == LOW_NONE) return;
    while (i < n_copies && copies[i].w != w) i++;
    n_taken++;
    n_old += i == n_copies || memcmp(copies[i].copy, w, COPY_BYTES) != 0;
}

static void matmul(struct backend *be, real_t *y, const real_t *x, const real_t *w, int n, int m,
                   int d) {
    calls[MATMUL][be->low]++;
    take(be, w);
    real.matmul(be, y, x, w, n, m, d);
}
static void matmul_dx(struct backend *be, real_t *dx, const real_t *dy, const real_t *w, int n,
                      int m, int d, int accumulate) {
    calls[MATMUL_DX][be->low]++;
    take(be, w);
    real.matmul_dx(be, dx, dy, w, n, m, d, accumulate);
}
static void matmul_dw(struct backend *be, float *dw, const real_t *dy, const real_t *x, int n,
                      int m, int d, int accumulate) {
    calls[MATMUL_DW][be->low]++;
    real.matmul_dw(be, dw, dy, x, n, m, d, accumulate);
}
static void up(struct backend *be, struct moe *m, real_t *z, real_t *h, const real_t *rows,
               const real_t *w) {
    calls[UP][be->low]++;
    take(be, w);
    real.experts_up(be, m, z, h, rows, w);
}
static void down(struct backend *be, struct moe *m, real_t *y, const real_t *h, const real_t *w) {
    calls[DOWN][be->low]++;
    take(be, w);
    real.experts_down(be, m, y, h, w);
}
static void down_backward(struct backend *be, struct moe *m, real_t *dz, float *dp, float *ddown,
                          const real_t *dy, const real_t *z, real_t *h, const real_t *w,
                          int accumulate) {
    calls[DOWN_BACKWARD][be->low]++;
    take(be, w);
    real.experts_down_backward(be, m, dz, dp, ddown, dy, z, h, w, accumulate);
}
static void up_backward(struct backend *be, struct moe *m, real_t *drows, float *dup,
                        const real_t *dz, const real_t *rows, const real_t *w, int accumulate) {
    calls[UP_BACKWARD][be->low]++;
    take(be, w);
    real.experts_up_backward(be, m, drows, dup, dz, rows, w, accumulate);
}

static void head(struct backend *be, real_t *dx, float *dw, double *loss, double *each,
                 const real_t *x, const real_t *w, const int32_t *targets, const float *weights,
                 const float *scale, int n, int v, int d, int accumulate) {
    calls[HEAD][be->low]++;
    real.head(be, dx, dw, loss, each, x, w, targets, weights, scale, n, v, d, accumulate);
}

static void watch(struct backend *be) {
    real = *be;
    be->matmul = matmul, be->matmul_dx = matmul_dx, be->matmul_dw = matmul_dw;
    be->experts_up = up, be->experts_down = down;
    be->experts_down_backward = down_backward, be->experts_up_backward = up_backward;
    be->head = head;
}

/* In a step of 4 layers, the first two of which stay out: the projections and the experts of the
 * others are in eight bits; the head and the router's products, which the CPU has of the same
 * calls, never are. Layers are made again but for the last, whose products are not. */
static void check_calls(const struct recipe *r) {
    static const struct {
        int low, whole;
    } expected[N_CALLS] = {[MATMUL] = {2 * 3, 2 * 4 + 4},
                           [MATMUL_DX] = {2 * 2, 2 * 2 + 4},
                           [MATMUL_DW] = {2 * 2, 2 * 2 + 4},
                           [UP] = {3, 4},
                           [DOWN] = {2, 2},
                           [DOWN_BACKWARD] = {2, 2},
                           [UP_BACKWARD] = {2, 2},
                           [HEAD] = {0, 1}};
    struct trial t;
    struct batch *b = open_step(&t, r, 1, ", first_layers_bf16: 2}\nmemory: {recompute: layer");
    const struct batch *const list[] = {b};
    int wrong = 0;
    watch(t.be);
    memset(calls, 0, sizeof calls);
    step_take(t.o, list, 1, 1e-3, NULL, 0);
    for (int k = 0; k < N_CALLS; k++) {
        int others = calls[k][LOW_FP8_BLOCK] + calls[k][LOW_MXFP8] - calls[k][r->low];
        if (calls[k][r->low] == expected[k].low && calls[k][LOW_NONE] == expected[k].whole &&
            !others)
            continue;
        tap_note("call %d: %d in eight bits, %d not", k, calls[k][r->low], calls[k][LOW_NONE]);
        wrong++;
    }
    tap_ok(wrong == 0, "%s: projections and experts of the layers in it, and nothing else",
           r->name);
    trial_close(&t);
    batch_free(b);
}

/* Products take copies of the weights as they are, whatever changed them: made once a step, of four
 * matrices of the three layers in it; where layers come and go, whenever one comes. */
static void check_copies(const struct recipe *r, int dp_size, const char *shard) {
    struct trial t;
    char *keys = memory_format(", first_layers_bf16: 1}\nparallelism: {shard: %s}\n"
                               "memory: {recompute: layer",
                               shard);
    struct batch *b = open_step(&t, r, dp_size, keys);
    const struct batch *const list[] = {b, b};
    watch(t.be);
    t.be->low_bytes = low_bytes, t.be->low_weights = low_weights;
    low_copies_new(t.m);
    n_copies = n_made = n_taken = n_old = 0;
    for (int i = 0; i < 3; i++) step_take(t.o, list, 2, 1e-3, NULL, 0);
    int made = n_made;
    model_init(t.m, 77);
    step_take(t.o, list, 2, 1e-3, NULL, 0);
    tap_ok(n_old == 0 && n_taken > 0 && (t.m->stages ? made > 3 * 4 * 3 : made == 3 * 4 * 3),
           "%s, shard %s: of %d products %d with copies of weights as they were; %d copies made",
           r->name, shard, n_taken, n_old, made);
    n_copies = 0;
    trial_close(&t);
    batch_free(b);
    memory_free(keys);
}

/* A NaN in one expert's weights makes the step one that is not applied. */
static void check_guard(const struct recipe *r) {
    float nan = NAN, before;
    struct trial t;
    struct batch *b = open_step(&t, r, 1, "");
    const struct batch *const list[] = {b};
    int first = step_take(t.o, list, 1, 1e-3, NULL, 0).finite;
    int down = t.m->params->layers[1].down;
    size_t n = t.m->params->list[down].n / 4, at = 2 * n + n / 2; /* in expert 2 */
    t.be->download_real(t.be, &before, real_at(t.be, model_own_weight(t.m, down), at), 1);
    uint64_t sound = trial_hash(&t);
    model_put(t.m, down, at, 1, &nan);
    uint64_t broken = trial_hash(&t);
    int second = step_take(t.o, list, 1, 1e-3, NULL, 0).finite;
    tap_ok(first && !second && trial_hash(&t) == broken && broken != sound,
           "%s: a step with a NaN in one expert is not applied", r->name);
    model_put(t.m, down, at, 1, &before);
    tap_ok(trial_hash(&t) == sound && step_take(t.o, list, 1, 1e-3, NULL, 0).finite,
           "%s: without it the run goes on", r->name);
    trial_close(&t);
    batch_free(b);
}

/* ---- what the deck asks for ---- */

static void check_settled(const char *keys, int capability, int recipe, const char *refusal) {
    char *deck =
        memory_format("num_train_steps: 1\nprecision: {%s}\ndataset.path: unused\n"
                      "model: {hidden_size: 8, intermediate_size: 8, num_hidden_layers: 3,\n"
                      "  num_attention_heads: 2, num_local_experts: 2}\n",
                      keys);
    struct config *c = config_parse(deck, "deck");
    char *problem = low_settle(c, capability);
    int as_said = refusal ? problem && strstr(problem, refusal) != NULL : !problem;
    tap_ok(as_said && c->precision.recipe == recipe, "%s on %d: %s", keys, capability,
           problem ? problem : "served");
    memory_free(problem);
    memory_free(deck);
    config_free(c);
}

static void check_layers(void) {
    struct config c = {
        .model.num_hidden_layers = 6,
        .precision = {.recipe = PRECISION_MXFP8, .first_layers_bf16 = 2, .last_layers_bf16 = 1}};
    int wrong = 0;
    for (int l = 0; l < 6; l++)
        wrong += low_layer(&c, l) != (l > 1 && l < 5 ? LOW_MXFP8 : LOW_NONE);
    tap_ok(wrong == 0, "layers 2 to 4 of 6 are in eight bits");
}

static void check_decks(void) {
    check_settled("recipe: auto", 0, PRECISION_AUTO, NULL);
    check_settled("recipe: bf16, emulate: true", 90, PRECISION_BF16, NULL);
    check_settled("recipe: mxfp8", 0, PRECISION_MXFP8, "precision.emulate=true");
    check_settled("recipe: mxfp8, emulate: true", 0, PRECISION_MXFP8, NULL);
    check_settled("recipe: fp8_block, emulate: true", 0, PRECISION_FP8_BLOCK, NULL);
    check_settled("recipe: fp8_block", 80, PRECISION_FP8_BLOCK, "precision.recipe=bf16");
    check_settled("recipe: auto8", 0, PRECISION_AUTO8, "bf16");
    check_settled("recipe: auto8", 80, PRECISION_AUTO8, "bf16");
    /* what it becomes; whether the backend has that yet is another question */
    for (int capability = 90; capability <= 103; capability += 13) {
        struct config c = {.precision.recipe = PRECISION_AUTO8};
        memory_free(low_settle(&c, capability));
        tap_ok(c.precision.recipe == (capability == 90 ? PRECISION_FP8_BLOCK : PRECISION_MXFP8),
               "auto8 on %d", capability);
    }
    check_layers();
}

int main(int argc, char **argv) {
    int ranks;
    tap_open(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks == 1) check_decks();
    for (int k = 0; k < 2; k++) {
        check_copies(&recipes[k], ranks, "optimizer");
        check_copies(&recipes[k], ranks, "full");
        if (ranks > 1) continue;
        check_calls(&recipes[k]);
        check_guard(&recipes[k]);
    }
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
