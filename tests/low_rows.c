/* precision.fp8_dispatch: the exchange with rows in eight bits is, to the bit, the exchange of
 * tokens that were rounded before it; so is a model's training. On several ranks they are one
 * expert-parallel group. */
#include "config.h"
#include "backend/formats.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench/routing.h"
#include "low_row.h"
#include "tap.h"
#include "train/step.h"
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct format of_row = {
    .element = E4M3, .scale = FORMAT_FP32, .rows = 1, .cols = LOW_ROW_BLOCK};

/* What rows[N, D] of host memory stand for. */
static void define(float *out, const float *x, int N, int D) {
    format_round(of_row, x, N, D, (size_t)D, out, (size_t)D, NULL, NULL);
}

/* ---- the exchange ---- */

enum load { SOME, ONE, ALL, N_LOADS };
static const char *const load_names[N_LOADS] = {"random", "all to the first rank", "all experts"};

static const char *const text_of_tokens[] = {"", ", fewer or none", ", none"};

struct kind {
    int D, N, A;
    enum load load;
    enum {
        FULL,
        UNEVEN,
        EMPTY
    } tokens; /* of a rank: N; none on odd ranks, N - rank on others; none */
};
static const struct kind kinds[] = {
    {8, 5, 1, SOME, FULL},      {24, 33, 2, SOME, UNEVEN}, {128, 40, 2, SOME, FULL},
    {200, 70, 3, SOME, UNEVEN}, {128, 19, 2, ONE, FULL},   {128, 30, 8, ALL, UNEVEN},
    {1032, 17, 4, SOME, FULL},  {64, 130, 2, ONE, UNEVEN}, {4096, 33, 2, SOME, FULL},
    {2304, 9, 8, ALL, FULL},    {16384, 3, 2, SOME, FULL}, {256, 7, 2, SOME, EMPTY}};

enum { E = 8 };

struct exchange {
    struct backend *be;
    struct moe_shape s;
    struct moe *moe;
    struct routing r;
    int N;
    float *host; /* [capacity, D], as the compute type has it */
    real_t *x, *defined, *out, *rows, *results;
    float *dp, *dp_rows;
    size_t R;
};

/* What rounding must not lose or spread: zeros, NaN, infinities, what underflows; and a value that
 * dwarfs the others of its block. */
static void draw(struct exchange *t, int rank) {
    size_t D = (size_t)t->s.D, n = (size_t)t->s.capacity * D;
    for (size_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)rank * n + i;
        t->host[i] = random_normal(9, RANDOM_TEST, at) * (at % 89 == 0 ? 300 : 1);
    }
    if (t->s.capacity < 9) return;
    memset(t->host, 0, D * sizeof *t->host);
    t->host[D + 3] = NAN;
    t->host[2 * D + D / 2] = -INFINITY;
    for (size_t j = 0; j < D; j++) t->host[3 * D + j] *= 1e-38f, t->host[4 * D + j] *= 1e36f;
    t->host[5 * D + 1] = 1e20f;
}

static void choose(int32_t *ids, const struct kind *k, int rank) {
    for (int i = 0; i < k->N; i++) {
        int32_t *of = ids + i * k->A;
        for (int a = 0; a < k->A; a++)
            of[a] = k->load == SOME
                        ? (int32_t)random_permute((uint64_t)(rank * 1000 + i), (uint64_t)a, E)
                        : a;
        routing_sort(of, k->A);
    }
}

static void exchange_open(struct exchange *t, struct backend *be, const struct kind *k) {
    const struct grid *g = be->grid;
    size_t n = (size_t)k->N * (size_t)k->D, r = be->real_bytes, N = (size_t)k->N;
    *t = (struct exchange){.be = be, .N = k->N};
    t->s = (struct moe_shape){.D = k->D, .F = 64, .E = E, .A = k->A, .capacity = k->N};
    if (k->tokens == UNEVEN) t->N = g->rank % 2 ? 0 : k->N - g->rank;
    if (k->tokens == EMPTY) t->N = 0;
    be->reserve(be, (struct work){.N = k->N,
                                  .D = k->D,
                                  .F = 64,
                                  .E = E,
                                  .A = k->A,
                                  .V = 64,
                                  .attention = {.H = 2, .G = 1, .K = 32},
                                  .theta = 1e4,
                                  .backward = 1});
    t->moe = be->moe_new(be, t->s);
    t->R = be->moe_rows(be, t->s);
    t->host = memory_alloc_array(2 * n + 1, sizeof *t->host);
    t->x = be->alloc(be, n * r), t->defined = be->alloc(be, n * r), t->out = be->alloc(be, n * r);
    t->rows = be->alloc_shared(be, t->R * (size_t)k->D * r);
    t->results = be->alloc_shared(be, t->R * (size_t)k->D * r);
    t->dp = be->alloc(be, N * (size_t)k->A * sizeof(float));
    t->dp_rows = be->alloc_shared(be, t->R * sizeof(float));
    t->r.ids = be->alloc(be, N * (size_t)k->A * sizeof(int32_t));
    t->r.p = be->alloc(be, N * (size_t)k->A * sizeof(float));
    int32_t *ids = memory_alloc_array(N * (size_t)k->A + 1, sizeof *ids);
    choose(ids, k, g->rank);
    be->upload(be, t->r.ids, ids, N * (size_t)k->A * sizeof *ids);
    memory_free(ids);
    draw(t, g->rank);
    be->upload_real(be, t->x, t->host, n);
    be->download_real(be, t->host, t->x, n);
    float *defined = t->host + n;
    define(defined, t->host, k->N, k->D);
    be->upload_real(be, t->defined, defined, n);
}

static void exchange_close(struct exchange *t) {
    void *const all[] = {t->x,  t->defined, t->out,   t->rows, t->results,
                         t->dp, t->dp_rows, t->r.ids, t->r.p};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) t->be->release(t->be, all[i]);
    t->be->moe_free(t->be, t->moe);
    memory_free(t->host);
}

/* Both ways to the experts, from x, with low_rows or without; and back. To be freed: the rows, the
 * results, and what comes back of them. */
static float *there_and_back(struct exchange *t, const real_t *x, int low_rows) {
    struct backend *be = t->be;
    size_t D = (size_t)t->s.D, n = t->R * D, back = (size_t)t->s.capacity * D;
    float *all = memory_alloc_array(2 * (n + back) + 1, sizeof *all);
    memset(all, 0xff, n * sizeof *all);
    be->upload(be, t->rows, all, n * be->real_bytes);
    be->upload(be, t->results, all, n * be->real_bytes);
    be->zero(be, t->out, back * be->real_bytes);
    be->zero(be, t->dp_rows, t->R * sizeof(float));
    be->download(be, all, t->rows, 1);
    MPI_Barrier(be->grid->world); /* others write to them */
    be->low_rows = low_rows;
    be->moe_dispatch(be, t->moe, t->rows, x, &t->r, t->N);
    be->download_real(be, all, t->rows, n);
    be->moe_combine(be, t->moe, t->out, t->rows, t->N);
    be->download_real(be, all + 2 * n, t->out, back);
    be->moe_combine_backward(be, t->moe, t->results, x, t->N);
    be->download_real(be, all + n, t->results, n);
    be->moe_dispatch_backward(be, t->moe, t->out, t->dp, t->results, t->dp_rows, t->N);
    be->download_real(be, all + 2 * n + back, t->out, back);
    be->low_rows = 0;
    MPI_Barrier(be->grid->world);
    return all;
}

/* The same bits, or both NaN. */
static size_t n_differ(const float *a, const float *b, size_t n) {
    size_t differ = 0;
    for (size_t i = 0; i < n; i++)
        differ += memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]));
    return differ;
}

static void check_exchange(const struct grid *g, const struct kind *k) {
    struct backend *be = trial_backend(g);
    struct exchange t;
    exchange_open(&t, be, k);
    size_t n = t.R * (size_t)k->D, back = (size_t)k->N * (size_t)k->D;
    float *low = there_and_back(&t, t.x, 1), *defined = there_and_back(&t, t.defined, 0),
          *plain = there_and_back(&t, t.x, 0);
    size_t wrong = n_differ(low, defined, n), wrong_back = n_differ(low + n, defined + n, n),
           wrong_out = n_differ(low + 2 * n, defined + 2 * n, 2 * back);
    int64_t other = (int64_t)n_differ(low, plain, n);
    MPI_Allreduce(MPI_IN_PLACE, &other, 1, MPI_INT64_T, MPI_SUM, g->world);
    tap_ok(wrong == 0 && wrong_back == 0 && wrong_out == 0 && (other > 0) == (k->tokens != EMPTY),
           "D %d, N %d%s, A %d, %s: rows of rounded tokens: %zu, %zu, %zu numbers differ", k->D,
           k->N, text_of_tokens[k->tokens], k->A, load_names[k->load], wrong, wrong_back,
           wrong_out);
    memory_free(low);
    memory_free(defined);
    memory_free(plain);
    exchange_close(&t);
    backend_close(be);
}

/* ---- what a recipe makes of such rows ---- */

enum { TOKENS = 512, COLS = 256 };

/* As a GPU keeps it. */
static float bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1), bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* fp8_block's first operand has the same blocks, and finds the same codes and scales again. */
static void check_again(const float *x) {
    static uint8_t codes[2][TOKENS * COLS];
    static float scales[2][TOKENS * COLS / LOW_ROW_BLOCK], rows[TOKENS * COLS];
    format_round(of_row, x, TOKENS, COLS, COLS, rows, COLS, codes[0], scales[0]);
    for (int i = 0; i < TOKENS * COLS; i++) rows[i] = bf16(rows[i]);
    format_round(of_row, rows, TOKENS, COLS, COLS, NULL, 0, codes[1], scales[1]);
    tap_ok(memcmp(codes[0], codes[1], sizeof codes[0]) == 0 &&
               memcmp(scales[0], scales[1], sizeof scales[0]) == 0,
           "rounded again, rows of BF16 have the same codes and scales");
}

static double off(const float *x, const float *reference, size_t n) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++)
        difference += pow((double)x[i] - (double)reference[i], 2), norm += pow(reference[i], 2);
    return sqrt(difference / norm);
}

/* Gradients of weights, whose blocks run down the tokens, are rounded twice. */
static void check_gradient(struct backend *be, const float *x, const float *dy, enum low low,
                           const char *name) {
    static float dw[3][COLS * COLS], rx[TOKENS * COLS], rdy[TOKENS * COLS];
    define(rx, x, TOKENS, COLS), define(rdy, dy, TOKENS, COLS);
    be->matmul_dw(be, dw[0], dy, x, TOKENS, COLS, COLS, 0);
    be->low = low;
    be->matmul_dw(be, dw[1], dy, x, TOKENS, COLS, COLS, 0);
    be->matmul_dw(be, dw[2], rdy, rx, TOKENS, COLS, COLS, 0);
    be->low = LOW_NONE;
    double once = off(dw[1], dw[0], COLS * COLS), twice = off(dw[2], dw[0], COLS * COLS);
    tap_ok(once > 0.03 && once < 0.04 && twice > once && twice < 0.055,
           "%s: error of the weights' gradient %.4f, of rows that were rounded before %.4f", name,
           once, twice);
}

static void check_recipes(const struct grid *g) {
    static float x[TOKENS * COLS], dy[TOKENS * COLS];
    struct backend *be = backend_open("cpu", g, NULL);
    for (uint64_t i = 0; i < TOKENS * COLS; i++)
        x[i] = bf16(random_normal(3, RANDOM_TEST, i)),
        dy[i] = bf16(random_normal(4, RANDOM_TEST, i));
    check_again(x);
    check_gradient(be, x, dy, LOW_FP8_BLOCK, "fp8_block");
    check_gradient(be, x, dy, LOW_MXFP8, "mxfp8");
    backend_close(be);
}

/* ---- a model ---- */

static struct backend real;

static void dispatch(struct backend *be, struct moe *m, real_t *rows, const real_t *x,
                     const struct routing *r, int N);
static void combine_backward(struct backend *be, struct moe *m, real_t *dy, const real_t *dout,
                             int N);

enum { WIDTH = 136, CAPACITY = 48, STEPS = 6, V = 13 };

static void dispatch(struct backend *be, struct moe *m, real_t *rows, const real_t *x,
                     const struct routing *r, int N) {
    static float rounded[CAPACITY * WIDTH];
    define(rounded, x, N, WIDTH);
    real.moe_dispatch(be, m, rows, rounded, r, N);
}

static void combine_backward(struct backend *be, struct moe *m, real_t *dy, const real_t *dout,
                             int N) {
    static float rounded[CAPACITY * WIDTH];
    define(rounded, dout, N, WIDTH);
    real.moe_combine_backward(be, m, dy, rounded, N);
}

static void with_rows(struct backend *be) {
    be->low_rows = 1;
}

static void with_definition(struct backend *be) {
    real = *be;
    be->moe_dispatch = dispatch, be->moe_combine_backward = combine_backward;
}

struct story {
    double loss[STEPS], norm[STEPS];
    uint64_t hash;
};

/* Steps of two micro-batches: those of ranks 0 and 1, or both of one rank. */
static struct story tell(MPI_Comm comm, int dp, int ep, const char *keys,
                         void (*prepare)(struct backend *be)) {
    struct trial t;
    struct story s;
    struct batch *b[2];
    char *deck = memory_format(
        "num_train_steps: 4\ngrad_acc_steps: %d\n%s\n"
        "dataset: {path: unused, alphabet: bytes, max_seq_length: 48, token_micro_batch_size: 48}\n"
        "model: {vocab_size: 13, hidden_size: 136, intermediate_size: 40, num_hidden_layers: 3,\n"
        "  num_attention_heads: 2, num_local_experts: 4, initializer_range: 0.1}\n",
        2 / (dp * ep), keys);
    trial_open_on(&t, comm, dp, ep, deck, prepare);
    for (int k = 0; k < 2; k++) {
        int32_t tokens[CAPACITY];
        float weights[CAPACITY];
        for (int i = 0; i < CAPACITY; i++)
            tokens[i] = (int32_t)(random_bits(2, RANDOM_TEST, (uint64_t)(k * CAPACITY + i)) % V),
            weights[i] = 1;
        batch_clear(b[k] = batch_new(CAPACITY));
        batch_append(b[k], tokens, tokens, weights, CAPACITY - k);
    }
    const struct batch *const of_rank[] = {b[(t.g.rank) % 2], b[1]};
    for (int i = 0; i < STEPS; i++) {
        struct step_sums sums = step_take(t.o, of_rank, 2 / (dp * ep), 1e-3, NULL, 0);
        s.loss[i] = sums.loss, s.norm[i] = sums.grad_norm;
    }
    s.hash = trial_hash(&t);
    trial_close(&t);
    for (int k = 0; k < 2; k++) batch_free(b[k]);
    memory_free(deck);
    return s;
}

static int same(const struct story *a, const struct story *b) {
    return memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
           memcmp(a->norm, b->norm, sizeof a->norm) == 0 && a->hash == b->hash;
}

static double apart(const struct story *a, const struct story *b) {
    double worst = 0;
    for (int i = 0; i < STEPS; i++) worst = fmax(worst, trial_error(a->loss[i], b->loss[i]));
    return worst;
}

/* Every recipe sees rounded rows, and layers that are made again get them again. */
static void check_model(int dp, int ep) {
    static const struct {
        const char *name, *keys;
    } of[] = {{"fp32", ""},
              {"fp8_block", "precision: {recipe: fp8_block, emulate: true}"},
              {"mxfp8, layers made again",
               "precision: {recipe: mxfp8, emulate: true}\nmemory.recompute: layer"}};
    for (int k = 0; k < 3; k++) {
        struct story rows = tell(MPI_COMM_WORLD, dp, ep, of[k].keys, with_rows),
                     defined = tell(MPI_COMM_WORLD, dp, ep, of[k].keys, with_definition),
                     without = tell(MPI_COMM_WORLD, dp, ep, of[k].keys, NULL);
        double d = apart(&rows, &without);
        tap_ok(same(&rows, &defined) && !same(&rows, &without) && d < 0.02,
               "%d x %d, %s: to the bit a model whose tokens are rounded before; loss %.1e from "
               "one's without",
               dp, ep, of[k].name, d);
    }
}

/* Rounding is the same on all grids. Sums of another order move weights by their last bits, and a
 * value next to the middle between two codes to the other one: after steps that is seen, as with
 * any eight bits (without them the losses stay within 1e-7). */
static void check_grids(int ranks) {
    struct story alone = tell(MPI_COMM_SELF, 1, 1, "", with_rows),
                 ep = tell(MPI_COMM_WORLD, 1, ranks, "", with_rows),
                 dp = tell(MPI_COMM_WORLD, ranks, 1, "", with_rows);
    tap_ok(alone.loss[0] > 0 && trial_error(ep.loss[0], alone.loss[0]) < 1e-6 &&
               trial_error(dp.loss[0], alone.loss[0]) < 1e-6,
           "the first step's loss on 1 x %d and %d x 1 is that of one rank: %.1e, %.1e", ranks,
           ranks, trial_error(ep.loss[0], alone.loss[0]), trial_error(dp.loss[0], alone.loss[0]));
    tap_ok(apart(&ep, &alone) < 0.01 && apart(&dp, &alone) < 0.01,
           "those of %d steps within 1 %%: %.1e, %.1e", STEPS, apart(&ep, &alone),
           apart(&dp, &alone));
}

int main(int argc, char **argv) {
    enum { N = sizeof kinds / sizeof *kinds };
    struct grid g;
    int ranks;
    tap_open(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    grid_open(&g, MPI_COMM_WORLD, 1, ranks);
    for (int k = 0; k < N; k++)
        if (tap_wanted(argc, argv, k + 1, N)) check_exchange(&g, &kinds[k]);
    if (ranks == 1) check_recipes(&g);
    grid_close(&g);
    if (!getenv("TEST_BACKEND") && ranks <= 2) {
        check_model(1, ranks);
        if (ranks == 2) check_grids(ranks);
    }
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
