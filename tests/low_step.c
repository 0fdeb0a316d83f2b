/* Eight bits in a model: which keys are served where, which products of a step are in it, copies of
 * weights that follow them, and a NaN that gets through it. On two ranks: the copies. */
#include "config.h"
#include "model/low.h"
#include "base/memory.h"
#include "base/random.h"
#include "model/low_statistics.h"
#include "model/stage.h"
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

static struct batch *open_on(struct trial *t, const struct recipe *r, int dp_size, int ep_size,
                             const char *keys, void (*prepare)(struct backend *be)) {
    int32_t tokens[CAPACITY];
    float weights[CAPACITY];
    struct batch *b = batch_new(CAPACITY);
    char *deck = memory_format(
        "num_train_steps: 4\nprecision: {recipe: %s, emulate: true%s}\n"
        "dataset: {path: unused, alphabet: bytes, max_seq_length: 48, token_micro_batch_size: 48}\n"
        "model: {vocab_size: 13, hidden_size: 40, intermediate_size: 33, num_hidden_layers: 4,\n"
        "  num_attention_heads: 2, num_local_experts: 4, initializer_range: 0.3}\n",
        r->name, keys);
    trial_open_on(t, MPI_COMM_WORLD, dp_size, ep_size, deck, prepare);
    for (int i = 0; i < CAPACITY; i++)
        tokens[i] = (int32_t)(random_bits(2, RANDOM_TEST, (uint64_t)i) % V), weights[i] = 1;
    batch_clear(b);
    batch_append(b, tokens, tokens, weights, CAPACITY);
    memory_free(deck);
    return b;
}

static struct batch *open_step(struct trial *t, const struct recipe *r, const char *keys) {
    return open_on(t, r, 1, 1, keys, NULL);
}

/* The real products, and how many of them were asked for by recipe. */
enum { MATMUL, MATMUL_DX, MATMUL_DW, UP, DOWN, DOWN_BACKWARD, UP_BACKWARD, HEAD, N_CALLS };
static struct backend real;
static int calls[N_CALLS][LOW_MXFP8 + 1];

/* Copies of weights, in place of which a GPU has eight bits: FP32, so the CPU's products take them.
 */
enum { MOST_COPIES = 64 };
static struct {
    const real_t *w, *copy;
    size_t bytes;
} copies[MOST_COPIES];
static int n_copies, n_made, n_taken, n_old;
static int weights_stay; /* where copies were made of them */

static size_t low_bytes(struct backend *be, int n, int N, int K) {
    (void)be;
    return (size_t)n * (size_t)N * (size_t)K * sizeof(float);
}
static int find(const real_t *copy) {
    int i = 0;
    while (i < n_copies && copies[i].copy != copy) i++;
    return i;
}
static void low_weights(struct backend *be, void *copy, const real_t *w, int n, int N, int K) {
    int i = find(copy);
    n_made++;
    if (i == n_copies) n_copies++;
    copies[i].w = w, copies[i].copy = copy, copies[i].bytes = low_bytes(be, n, N, K);
    memcpy(copy, w, copies[i].bytes);
}
/* A product of a recipe is given a copy: of what stands there now. */
static void take(const struct backend *be, const real_t *w) {
    int i = find(w);
    if (be->low_bytes != low_bytes || be->low == LOW_NONE) return;
    n_taken++;
    n_old += i == n_copies || (weights_stay && memcmp(w, copies[i].w, copies[i].bytes) != 0);
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
static void down_backward(struct backend *be, struct moe *m, real_t *dz, float *dp,
                          struct gradient ddown, const real_t *dy, const real_t *z, real_t *h,
                          const real_t *w) {
    calls[DOWN_BACKWARD][be->low]++;
    take(be, w);
    real.experts_down_backward(be, m, dz, dp, ddown, dy, z, h, w);
}
static void up_backward(struct backend *be, struct moe *m, real_t *drows, struct gradient dup,
                        const real_t *dz, const real_t *rows, const real_t *w) {
    calls[UP_BACKWARD][be->low]++;
    take(be, w);
    real.experts_up_backward(be, m, drows, dup, dz, rows, w);
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

static void give_copies(struct backend *be) {
    watch(be);
    be->low_bytes = low_bytes, be->low_weights = low_weights;
    n_copies = n_made = n_taken = n_old = 0;
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
    struct batch *b = open_step(&t, r, ", first_layers_bf16: 2}\nmemory: {recompute: layer");
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
static void check_copies(const struct recipe *r, int dp_size, const char *out, const char *shard) {
    struct trial t;
    char *keys =
        memory_format(", %s}\nparallelism: {shard: %s}\nmemory: {recompute: layer", out, shard);
    weights_stay = 1;
    struct batch *b = open_on(&t, r, dp_size, 1, keys, give_copies);
    const struct batch *const list[] = {b, b};
    for (int i = 0; i < 3; i++) step_take(t.o, list, 2, 1e-3, NULL, 0);
    int made = n_made;
    model_init(t.m, 77);
    step_take(t.o, list, 2, 1e-3, NULL, 0);
    tap_ok(n_old == 0 && n_taken > 0 && (t.m->stages ? made > 3 * 4 * 3 : made == 3 * 4 * 3),
           "%s, %s, shard %s: of %d products %d without copies of weights as they are; %d made",
           r->name, out, shard, n_taken, n_old, made);
    trial_close(&t);
    batch_free(b);
    memory_free(keys);
}

/* ---- what a run is, to the bit ---- */

enum { STEPS = 8 };
struct story {
    float *state; /* [n] sums of statistics, masters, moments, whole weights */
    size_t n, weights;
    struct step_sums sums[STEPS];
};

static void scale_masters(struct model *m, float by) {
    for (int i = 0; i < m->params->n; i++) {
        float *master = model_master(m, i);
        for (size_t k = 0; k < m->shares[i].n; k++) master[k] *= by;
    }
    model_publish(m);
}

/* Value `at` of tensor i, of those who keep it. */
static void change(struct model *m, int i, size_t at, float value) {
    const struct share *s = &m->shares[i];
    if (at >= s->kept_first && at < s->kept_first + s->kept_n) model_put(m, i, at, 1, &value);
    model_forget_weight(m, i);
}

static void add_state(struct story *s, const float *x, size_t n) {
    s->state = memory_resize(s->state, (s->n + n) * sizeof *s->state);
    memcpy(s->state + s->n, x, n * sizeof *x);
    s->n += n;
}

/* Steps after all that changes weights: AdamW, a step that is not applied, masters that come from a
 * checkpoint, a new start. */
static struct story tell(struct trial *t, const struct batch *const list[2]) {
    struct story s = {.weights = t->m->sizes.weights};
    struct model *m = t->m;
    int n = 0, down = m->params->layers[2].down;
    float before;
    for (; n < 3; n++) s.sums[n] = step_take(t->o, list, 2, 1e-2, NULL, 0);
    t->be->download_real(t->be, &before, real_at(t->be, model_whole(m, down), 5), 1);
    change(m, down, 5, NAN);
    s.sums[n++] = step_take(t->o, list, 2, 1e-2, NULL, 0);
    change(m, down, 5, before);
    s.sums[n++] = step_take(t->o, list, 2, 1e-2, NULL, 0);
    scale_masters(m, 0.75f);
    s.sums[n++] = step_take(t->o, list, 2, 1e-2, NULL, 0);
    model_init(m, 77);
    m->sampled = 1;
    for (; n < STEPS; n++) s.sums[n] = step_take(t->o, list, 2, 1e-2, NULL, 0);
    m->sampled = 0;
    add_state(&s, (const float *)m->low_sums, (size_t)m->s.L * N_LOW_KINDS * N_LOW_SUMS * 2);
    for (int i = 0; i < m->params->n; i++)
        add_state(&s, model_master(m, i), m->shares[i].n),
            add_state(&s, model_whole(m, i), m->params->list[i].n);
    add_state(&s, t->o->m, m->sizes.moments), add_state(&s, t->o->v, m->sizes.moments);
    return s;
}

static int same_story(const struct story *a, const struct story *b) {
    int same = a->n == b->n && memcmp(a->state, b->state, a->n * sizeof *a->state) == 0;
    for (int i = 0; i < STEPS; i++)
        same = same && a->sums[i].finite == (i != 3) && b->sums[i].finite == (i != 3) &&
               (i == 3 || (a->sums[i].loss == b->sums[i].loss &&
                           a->sums[i].grad_norm == b->sums[i].grad_norm));
    return same;
}

/* ---- precision.fp8_weights ---- */

/* The weights that the option leaves out of the arena, less the room for one of them. */
static size_t left_out(const struct model *m) {
    size_t sum = 0, most = 0;
    for (int l = 1; l < m->s.L; l++) { /* the first stays out of the recipe */
        const int list[] = {m->params->layers[l].up, m->params->layers[l].down};
        for (int k = 0; k < 2; k++) {
            const struct share *s = &m->shares[list[k]];
            sum += s->kept_n;
            if (!s->staged && s->kept_n > most) most = s->kept_n;
        }
    }
    return sum - most;
}

/* Without weights of experts a run is to the bit what it is with them, and nothing stays of them:
 * not in a model that only evaluates, which has no masters. */
static void check_alone(const struct recipe *r, int dp_size, int ep_size, const char *shard,
                        const char *more) {
    char *text = memory_format("first_layers_bf16: 1}\nparallelism: {shard: %s}\n%s\n"
                               "memory: {recompute: layer",
                               shard, more),
         *without = memory_format(", %s", text),
         *with = memory_format(", fp8_weights: true, %s", text);
    struct trial t;
    struct batch *b = open_on(&t, r, dp_size, ep_size, without, NULL);
    const struct batch *const list[] = {b, b};
    struct story plain = tell(&t, list), alone;
    trial_close(&t);
    batch_free(b);
    weights_stay = 0;
    b = open_on(&t, r, dp_size, ep_size, with, give_copies);
    const struct batch *const again[] = {b, b};
    alone = tell(&t, again);
    size_t out = left_out(t.m), rest = plain.weights - alone.weights;
    tap_ok(same_story(&plain, &alone) && n_taken > 0 && n_old == 0,
           "%s, %d x %d, shard %s, fp8_weights %s: the same to the bit", r->name, dp_size, ep_size,
           shard, more);
    tap_ok(out > 0 && rest + 16 * PARAMS_ALIGN > out && rest < out + 16 * PARAMS_ALIGN,
           "%zu weights less, of %zu", rest, plain.weights);
    int up = t.m->params->layers[3].up;
    struct model *eval = model_new(t.c, t.be, CAPACITY, /*with_gradients=*/0);
    tap_ok(!model_own_weight(t.m, up) && model_own_weight(eval, up) && !eval->masters,
           "a model without gradients keeps them");
    model_free(eval);
    trial_close(&t);
    batch_free(b);
    memory_free(plain.state);
    memory_free(alone.state);
    memory_free(with);
    memory_free(without);
    memory_free(text);
}

/* ---- activations that are kept in eight bits: here copies ---- */

static int n_kept;

static size_t low_kept_bytes(struct backend *be, int n, int d) {
    (void)be;
    return (size_t)n * (size_t)d * sizeof(float);
}
static void low_keep(struct backend *be, void *kept, const real_t *x, int n, int d) {
    be->copy(be, kept, x, low_kept_bytes(be, n, d));
}
static void matmul_dw_kept(struct backend *be, float *dw, const real_t *dy, const void *kept, int n,
                           int m, int d, int accumulate) {
    n_kept++;
    be->matmul_dw(be, dw, dy, kept, n, m, d, accumulate);
}
static void keep(struct backend *be) {
    be->low_kept_bytes = low_kept_bytes, be->low_keep = low_keep;
    be->matmul_dw_kept = matmul_dw_kept;
}

/* Layers share the array that they make it of: were that read in the backward pass, it would be
 * another layer's. */
static void check_kept(const struct recipe *r, const char *recompute) {
    char *keys = memory_format(", first_layers_bf16: 1}\nmemory: {%s", recompute);
    struct trial t;
    struct batch *b = open_step(&t, r, keys);
    const struct batch *const list[] = {b, b};
    struct story plain = tell(&t, list);
    trial_close(&t);
    batch_free(b);
    b = open_on(&t, r, 1, 1, keys, keep);
    const struct batch *const again[] = {b, b};
    n_kept = 0;
    struct story kept = tell(&t, again);
    int shared = t.m->layers[1].xn1 == t.m->layers[3].xn1, own = !t.m->layers[0].xn1_low;
    tap_ok(same_story(&plain, &kept) && n_kept == STEPS * 2 * 3 && shared && own,
           "%s, %s: projections' inputs kept in eight bits: the same to the bit", r->name,
           recompute);
    trial_close(&t);
    batch_free(b);
    memory_free(plain.state);
    memory_free(kept.state);
    memory_free(keys);
}

static void check_fp8_weights(const struct recipe *r, int ranks) {
    static const char *const shards[] = {"none", "optimizer", "full"};
    for (int k = 0; k < 3; k++) {
        check_alone(r, ranks, 1, shards[k], "");
        if (ranks > 1) check_alone(r, 1, ranks, shards[k], "");
    }
    check_alone(r, ranks, 1, "optimizer",
                "train.freeze: ['*.1.mlp.experts.*', '*.2.*gate_up_proj', '*q_proj*']");
}

/* A NaN in one expert's weights makes the step one that is not applied. */
static void check_guard(const struct recipe *r) {
    float nan = NAN, before;
    struct trial t;
    struct batch *b = open_step(&t, r, "");
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

/* Statistics of a sampled step change nothing, and are those of that step; a NaN in the weights of
 * an expert is counted, and leaves the other operands their figures. */
static void check_sampled(const struct recipe *r) {
    float nan = NAN;
    struct trial t, u;
    struct batch *b = open_step(&t, r, ", first_layers_bf16: 1"),
                 *c = open_step(&u, r, ", first_layers_bf16: 1");
    const struct batch *const list[] = {b, b};
    struct low_figures f = low_figures_new(4), once = low_figures_new(4);
    t.m->sampled = 1;
    step_take(t.o, list, 1, 0, NULL, 0);
    low_statistics_read(t.m, &once);
    step_take(t.o, list, 2, 1e-3, NULL, 0), step_take(u.o, list, 1, 0, NULL, 0);
    step_take(u.o, list, 2, 1e-3, NULL, 0);
    low_statistics_read(t.m, &f);
    int wrong = 0, error = LOW_ERROR, lost = LOW_SHARE_NONFINITE;
    for (int i = 0; i < 4 * N_LOW_KINDS; i++) {
        int weights = i % N_LOW_KINDS % 3 == 1, out = i < N_LOW_KINDS;
        wrong += out ? f.values[i] != 0 || !isnan(f.figures[error][i])
                     : f.values[i] <= 0 || !(f.figures[error][i] > 0 && f.figures[error][i] < 0.1);
        wrong += f.values[i] > (weights ? 1 : 2) * once.values[i];
        wrong += !out && f.values[i] < (weights ? 1 : 1.9) * (double)once.values[i];
        wrong += !out && f.figures[lost][i] != 0;
    }
    int64_t up = f.values[N_LOW_KINDS + LOW_UP_WEIGHT];
    tap_ok(
        !wrong && up == 4 * 2 * 33 * 40 && trial_hash(&t) == trial_hash(&u),
        "%s: a sampled step: figures of its layers, of two micro-batches, weights once; the same "
        "model (%d wrong)",
        r->name, wrong);
    int down = t.m->params->layers[1].down, block = r->low == LOW_MXFP8 ? 32 : 33 * 40;
    model_put(t.m, down, 2 * 33 * 40, 1, &nan); /* expert 2's first */
    step_take(t.o, list, 1, 1e-3, NULL, 0);
    low_statistics_read(t.m, &f);
    int at = N_LOW_KINDS + LOW_DOWN_WEIGHT, before = N_LOW_KINDS + LOW_UP_INPUT;
    tap_ok(f.figures[lost][at] == block / (4.0 * 33 * 40) && f.figures[error][at] < 0.1 &&
               f.figures[lost][before] == 0 && f.figures[error][before] < 0.1 &&
               f.figures[lost][2 * N_LOW_KINDS + LOW_QKV_INPUT] > 0,
           "%s: a NaN: %g of the weights are lost, the others' error is %.3g", r->name,
           f.figures[lost][at], f.figures[error][at]);
    low_figures_free(&f), low_figures_free(&once);
    trial_close(&t), trial_close(&u);
    batch_free(b), batch_free(c);
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
    char numbers[] = "5 10 0  3";
    c.precision.first_layers_bf16 = c.precision.last_layers_bf16 = 0;
    c.precision.layers_bf16 = numbers;
    c.model.num_hidden_layers = 12;
    const int out[12] = {[0] = 1, [3] = 1, [5] = 1, [10] = 1};
    for (int l = 0; l < 12; l++) wrong += (low_layer(&c, l) == LOW_NONE) != out[l];
    char *text = low_text(&c, 0);
    tap_ok(wrong == 0 &&
               strcmp(text, "mxfp8, emulated, in layers 1 to 2, 4, 6 to 9, 11 of 0 to 11") == 0,
           "a list of layers that stay out: %s", text);
    memory_free(text);
}

static void check_decks(void) {
    check_settled("recipe: auto", 0, PRECISION_AUTO, NULL);
    check_settled("recipe: bf16, emulate: true", 90, PRECISION_BF16, NULL);
    check_settled("recipe: mxfp8", 0, PRECISION_MXFP8, "precision.emulate=true");
    check_settled("recipe: mxfp8, emulate: true", 0, PRECISION_MXFP8, NULL);
    check_settled("recipe: mxfp8", 90, PRECISION_MXFP8, "precision.recipe=fp8_block is fast");
    check_settled("recipe: mxfp8, emulate: true", 80, PRECISION_MXFP8, NULL);
    check_settled("recipe: mxfp8", 100, PRECISION_MXFP8, NULL);
    check_settled("recipe: auto8", 100, PRECISION_MXFP8, NULL);
    check_settled("recipe: fp8_block", 100, PRECISION_FP8_BLOCK, "precision.recipe=bf16");
    check_settled("recipe: fp8_block, emulate: true", 0, PRECISION_FP8_BLOCK, NULL);
    check_settled("recipe: fp8_block", 80, PRECISION_FP8_BLOCK, "precision.recipe=bf16");
    check_settled("recipe: auto8", 0, PRECISION_AUTO8, "bf16");
    check_settled("recipe: auto8", 80, PRECISION_AUTO8, "bf16");
    check_settled("recipe: bf16, fp8_dispatch: true", 0, PRECISION_BF16, NULL);
    check_settled("recipe: bf16, fp8_dispatch: true", 89, PRECISION_BF16, NULL);
    check_settled("recipe: bf16, fp8_dispatch: true", 80, PRECISION_BF16,
                  "precision.fp8_dispatch needs GPUs of compute capability 8.9 or more; these "
                  "have 8.0");
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
        check_copies(&recipes[k], ranks, "first_layers_bf16: 1", "optimizer");
        check_copies(&recipes[k], ranks, "first_layers_bf16: 1", "full");
        check_copies(&recipes[k], ranks, "layers_bf16: [1]", "full");
        check_fp8_weights(&recipes[k], ranks);
        if (ranks > 1) continue;
        check_calls(&recipes[k]);
        check_guard(&recipes[k]);
        check_sampled(&recipes[k]);
        check_kept(&recipes[k], "recompute: none");
        check_kept(&recipes[k], "recompute: activation");
        check_kept(&recipes[k], "recompute: layer");
        check_kept(&recipes[k], "recompute: activation, recompute_layers: 2");
        check_kept(&recipes[k], "recompute: layer, recompute_layers: 3");
    }
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
