/* What a recipe of eight bits does to the products of a trained model: a small one learns from the
 * E. coli genome in FP32; then in one step each product of projections and experts is also computed
 * by either recipe, from the operands that it has there, and compared with FP64 (the two that are
 * behind the activation's gradient, with FP32). */
#include "config.h"
#include "base/memory.h"
#include "genome.h"
#include "tap.h"
#include "train/step.h"
#include "trial.h"
#include <math.h>
#include <string.h>

enum { TOKENS = 512, STEPS = 120, LAYERS = 2, E = 4, D = 128, F = 256 };

static const enum low recipes[] = {LOW_FP8_BLOCK, LOW_MXFP8};
static const char *const names[] = {"fp8_block", "mxfp8"};

enum product {
    PROJECTION,
    PROJECTION_DX,
    PROJECTION_DW,
    UP,
    DOWN,
    DZ,
    DOWN_DW,
    UP_DX,
    UP_DW,
    N_PRODUCTS
};
static const char *const products[N_PRODUCTS] = {"projections",
                                                 "their gradients of tokens",
                                                 "of weights",
                                                 "gate and up",
                                                 "down",
                                                 "gradient of both",
                                                 "of down's weights",
                                                 "of rows",
                                                 "of gate and up's weights"};

/* [recipe][product] squares of differences and of what is right, in the measured step */
static struct { double off, right; } sums[2][N_PRODUCTS];
static struct backend real;
static int measuring;

/* ---- experts' rows, which lie one expert behind the other ---- */

static struct {
    const struct moe *moe;
    int first[E + 1];
} layers[LAYERS];

static void dispatch(struct backend *be, struct moe *m, real_t *rows, const real_t *x,
                     const struct routing *r, int N) {
    int k = 0, counts[E] = {0};
    while (k < LAYERS - 1 && layers[k].moe && layers[k].moe != m) k++;
    for (int i = 0; i < N * 2; i++) counts[r->ids[i]]++;
    layers[k].moe = m;
    for (int e = 0; e < E; e++) layers[k].first[e + 1] = layers[k].first[e] + counts[e];
    real.moe_dispatch(be, m, rows, x, r, N);
}

static const int *first_rows(const struct moe *m) {
    int k = 0;
    while (layers[k].moe != m) k++;
    return layers[k].first;
}

/* ---- comparing ---- */

/* An operand of a product: element k of the sum of row i is x[i * row + k * step]. */
struct operand {
    const float *x;
    int row, step;
};

static struct operand from(const real_t *x, size_t first, int row, int step) {
    return (struct operand){(const float *)x + first, row, step};
}

static void compare(int recipe, enum product p, const float *c, struct operand a, struct operand b,
                    int n, int m, int depth) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            double right = 0;
            for (int k = 0; k < depth; k++)
                right += (double)a.x[i * a.row + k * a.step] * b.x[j * b.row + k * b.step];
            double off = c[i * m + j] - right;
            sums[recipe][p].off += off * off, sums[recipe][p].right += right * right;
        }
}

static void compare_values(int recipe, enum product p, const float *c, const float *right,
                           size_t n) {
    for (size_t i = 0; i < n; i++) {
        double off = (double)c[i] - right[i];
        sums[recipe][p].off += off * off, sums[recipe][p].right += (double)right[i] * right[i];
    }
}

static float *room(size_t rows, size_t cols) {
    float *x = memory_alloc_array(rows * cols, sizeof *x);
    memset(x, 0, rows * cols * sizeof *x);
    return x;
}

/* ---- the products ---- */

static void matmul(struct backend *be, real_t *y, const real_t *x, const real_t *w, int n, int m,
                   int d) {
    real.matmul(be, y, x, w, n, m, d);
    if (!measuring || m <= 2 * E) return; /* the router's */
    float *c = room((size_t)n, (size_t)m);
    for (int r = 0; r < 2; r++) {
        be->low = recipes[r];
        real.matmul(be, c, x, w, n, m, d);
        compare(r, PROJECTION, c, from(x, 0, d, 1), from(w, 0, d, 1), n, m, d);
    }
    be->low = LOW_NONE;
    memory_free(c);
}

static void matmul_dx(struct backend *be, real_t *dx, const real_t *dy, const real_t *w, int n,
                      int m, int d, int accumulate) {
    real.matmul_dx(be, dx, dy, w, n, m, d, accumulate);
    if (!measuring || m <= 2 * E) return;
    float *c = room((size_t)n, (size_t)d);
    for (int r = 0; r < 2; r++) {
        be->low = recipes[r];
        real.matmul_dx(be, c, dy, w, n, m, d, 0);
        compare(r, PROJECTION_DX, c, from(dy, 0, m, 1), from(w, 0, 1, d), n, d, m);
    }
    be->low = LOW_NONE;
    memory_free(c);
}

static void matmul_dw(struct backend *be, float *dw, const real_t *dy, const real_t *x, int n,
                      int m, int d, int accumulate) {
    real.matmul_dw(be, dw, dy, x, n, m, d, accumulate);
    if (!measuring || m <= 2 * E) return;
    float *c = room((size_t)m, (size_t)d);
    for (int r = 0; r < 2; r++) {
        be->low = recipes[r];
        real.matmul_dw(be, c, dy, x, n, m, d, 0);
        compare(r, PROJECTION_DW, c, from(dy, 0, 1, m), from(x, 0, 1, d), m, d, n);
    }
    be->low = LOW_NONE;
    memory_free(c);
}

static void up(struct backend *be, struct moe *m, real_t *z, real_t *h, const real_t *rows,
               const real_t *w) {
    real.experts_up(be, m, z, h, rows, w);
    if (!measuring) return;
    const int *first = first_rows(m);
    float *c = room(2 * TOKENS, 2 * F), *other = room(2 * TOKENS, F);
    for (int r = 0; r < 2; r++) {
        be->low = recipes[r];
        real.experts_up(be, m, c, other, rows, w);
        for (int e = 0; e < E; e++)
            compare(r, UP, c + (size_t)first[e] * 2 * F, from(rows, (size_t)first[e] * D, D, 1),
                    from(w, (size_t)e * 2 * F * D, D, 1), first[e + 1] - first[e], 2 * F, D);
    }
    be->low = LOW_NONE;
    memory_free(c);
    memory_free(other);
}

static void down(struct backend *be, struct moe *m, real_t *y, const real_t *h, const real_t *w) {
    real.experts_down(be, m, y, h, w);
    if (!measuring) return;
    const int *first = first_rows(m);
    float *c = room(2 * TOKENS, D);
    for (int r = 0; r < 2; r++) {
        be->low = recipes[r];
        real.experts_down(be, m, c, h, w);
        for (int e = 0; e < E; e++)
            compare(r, DOWN, c + (size_t)first[e] * D, from(h, (size_t)first[e] * F, F, 1),
                    from(w, (size_t)e * D * F, F, 1), first[e + 1] - first[e], D, F);
    }
    be->low = LOW_NONE;
    memory_free(c);
}

static void down_backward(struct backend *be, struct moe *m, real_t *dz, float *dp,
                          struct gradient ddown, const real_t *dy, const real_t *z, real_t *h,
                          const real_t *w) {
    if (measuring) {
        const size_t n = (size_t)first_rows(m)[E] * 2 * F, n_weights = (size_t)E * D * F;
        float *c[3], *dw[3], *other = room(2 * TOKENS, F), *sums_of = room(2 * TOKENS, 1);
        for (int r = 0; r < 3; r++) { /* the last one in FP32 */
            c[r] = room(2 * TOKENS, 2 * F), dw[r] = room(E * D, F);
            be->low = r < 2 ? recipes[r] : LOW_NONE;
            real.experts_down_backward(be, m, c[r], sums_of, gradient_whole(dw[r], 0), dy, z, other,
                                       w);
        }
        for (int r = 0; r < 2; r++) {
            compare_values(r, DZ, c[r], c[2], n);
            compare_values(r, DOWN_DW, dw[r], dw[2], n_weights);
        }
        for (int r = 0; r < 3; r++) memory_free(c[r]), memory_free(dw[r]);
        memory_free(other);
        memory_free(sums_of);
    }
    real.experts_down_backward(be, m, dz, dp, ddown, dy, z, h, w);
}

static void up_backward(struct backend *be, struct moe *m, real_t *drows, struct gradient dup,
                        const real_t *dz, const real_t *rows, const real_t *w) {
    if (measuring) {
        const int *first = first_rows(m);
        float *c = room(2 * TOKENS, D), *dw = room((size_t)E * 2 * F, D);
        for (int r = 0; r < 2; r++) {
            be->low = recipes[r];
            real.experts_up_backward(be, m, c, gradient_whole(dw, 0), dz, rows, w);
            for (int e = 0; e < E; e++) {
                size_t of = (size_t)first[e] * 2 * F, x = (size_t)first[e] * D;
                int n = first[e + 1] - first[e];
                compare(r, UP_DX, c + (size_t)first[e] * D, from(dz, of, 2 * F, 1),
                        from(w, (size_t)e * 2 * F * D, 1, D), n, D, 2 * F);
                compare(r, UP_DW, dw + (size_t)e * 2 * F * D, from(dz, of, 1, 2 * F),
                        from(rows, x, 1, D), 2 * F, D, n);
            }
        }
        be->low = LOW_NONE;
        memory_free(c);
        memory_free(dw);
    }
    real.experts_up_backward(be, m, drows, dup, dz, rows, w);
}

static void watch(struct backend *be) {
    real = *be;
    be->moe_dispatch = dispatch;
    be->matmul = matmul, be->matmul_dx = matmul_dx, be->matmul_dw = matmul_dw;
    be->experts_up = up, be->experts_down = down;
    be->experts_down_backward = down_backward, be->experts_up_backward = up_backward;
}

/* ---- learning ---- */

/* The first n bases of the genome as 0 to 3; returns how many of them are one of the four. */
static int read_bases(int32_t *bases, int n) {
    static const char letters[] = "ACGT";
    char *path, *text = memory_alloc((size_t)n);
    int have = (int)genome_read(text, (size_t)n, &path), known = 0;
    for (int i = 0; i < have; i++) {
        const char *at = memchr(letters, text[i], 4);
        bases[i] = at ? (int32_t)(at - letters) : 0;
        known += at != NULL;
    }
    memory_free(text);
    memory_free(path);
    return known;
}

int main(int argc, char **argv) {
    enum { BASES = STEPS * TOKENS };
    struct trial t;
    tap_open(&argc, &argv);
    int32_t *bases = memory_alloc_array(BASES, sizeof *bases);
    tap_ok(read_bases(bases, BASES) == BASES, "%d bases of the genome", BASES);
    char *deck = memory_format(
        "num_train_steps: %d\n"
        "dataset: {path: unused, alphabet: bytes, max_seq_length: %d, token_micro_batch_size: %d}\n"
        "model: {vocab_size: 8, hidden_size: %d, intermediate_size: %d, num_hidden_layers: %d,\n"
        "  num_attention_heads: 4, num_local_experts: %d, num_experts_per_tok: 2}\n",
        STEPS, TOKENS, TOKENS, D, F, LAYERS, E);
    trial_open_on(&t, MPI_COMM_WORLD, 1, 1, deck, watch);
    struct batch *b = batch_new(TOKENS);
    const struct batch *const list[] = {b};
    double first = 0, last = 0;
    for (int i = 0; i < STEPS; i++) {
        batch_clear(b);
        batch_append(b, bases + i * TOKENS, bases + i * TOKENS, NULL, TOKENS);
        measuring = i == STEPS - 1;
        last = step_take(t.o, list, 1, 3e-3, NULL, 0).loss;
        if (i == 0) first = last;
    }
    tap_ok(last < 1.42 && first > 1.9, "a model that has learnt: loss %.3f, at first %.3f", last,
           first);
    for (int r = 0; r < 2; r++)
        for (int p = 0; p < N_PRODUCTS; p++) {
            double error = sqrt(sums[r][p].off / sums[r][p].right);
            tap_ok(error > 0.005 && error < 0.05, "%s, %s: relative error %.4f", names[r],
                   products[p], error);
        }
    batch_free(b);
    trial_close(&t);
    memory_free(deck);
    memory_free(bases);
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
