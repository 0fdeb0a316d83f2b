/* Everything but the experts. */
#include "config.h"
#include "base/memory.h"
#include "bench/operation.h"
#include <math.h>
#include <string.h>

#define P(k) (d->p[k].at[side])

/* ---- the ceilings ---- */

static void make_copy(struct data *d) {
    data_read(d, PAIR_FLOAT, d->z.copied, 1);
    data_write(d, PAIR_FLOAT, d->z.copied);
}

static void run_copy(struct data *d, struct backend *be, int side) {
    be->copy(be, P(1), P(0), d->z.copied * sizeof(float));
}

static double cost_copy(const struct sizes *z, double r) {
    (void)r;
    return 2 * sizeof(float) * (double)z->copied;
}

static void make_square(struct data *d) {
    size_t n = area(d->z.side, d->z.side);
    data_read(d, PAIR_REAL, n, 1);
    data_read(d, PAIR_REAL, n, 1);
    data_write(d, PAIR_REAL, n);
}

static void run_square(struct data *d, struct backend *be, int side) {
    be->matmul(be, P(2), P(0), P(1), d->z.side, d->z.side, d->z.side);
}

static double cost_square(const struct sizes *z, double r) {
    (void)r;
    return 2.0 * z->side * z->side * z->side;
}

/* ---- embedding ---- */

/* Rows of the table that N random tokens are expected to name. */
static double rows_named(const struct sizes *z) {
    return z->V * (1 - exp(-(double)z->N / z->V));
}

static void make_embed(struct data *d) {
    data_random_ints(d, (size_t)d->z.N, d->z.V);
    data_read(d, PAIR_REAL, area(d->z.V, d->z.D), 1);
    data_write(d, PAIR_REAL, area(d->z.N, d->z.D));
}

static void run_embed(struct data *d, struct backend *be, int side) {
    be->embed(be, P(2), P(1), P(0), d->z.N, d->z.D);
}

static double cost_embed(const struct sizes *z, double r) {
    return 4.0 * z->N + (z->N + rows_named(z)) * z->D * r;
}

static void make_embed_backward(struct data *d) {
    data_random_ints(d, (size_t)d->z.N, d->z.V);
    data_read(d, PAIR_REAL, area(d->z.N, d->z.D), 1);
    data_change(d, PAIR_FLOAT, area(d->z.V, d->z.D), 1);
}

static void run_embed_backward(struct data *d, struct backend *be, int side) {
    be->embed_backward(be, P(2), P(1), P(0), d->z.N, d->z.D, d->z.V);
}

static double cost_embed_backward(const struct sizes *z, double r) {
    return z->N * (4 + z->D * r) + 8 * rows_named(z) * z->D;
}

/* ---- norms ---- */

static void make_norm(struct data *d) {
    size_t n = area(d->z.N, d->z.D);
    data_read(d, PAIR_REAL, n, 1);
    data_read(d, PAIR_REAL, n, 1);
    data_read(d, PAIR_REAL, (size_t)d->z.D, 1);
    data_write(d, PAIR_REAL, n);
    data_write(d, PAIR_REAL, n);
    data_write(d, PAIR_FLOAT, (size_t)d->z.N);
}

static void run_norm(struct data *d, struct backend *be, int side) {
    be->add_norm(be, P(3), P(4), P(5), P(0), P(1), P(2), 1e-5f, d->z.N, d->z.D);
}

static double cost_norm(const struct sizes *z, double r) {
    return 4.0 * z->N * z->D * r + 4.0 * z->N + z->D * r;
}

static void make_norm_backward(struct data *d) {
    size_t n = area(d->z.N, d->z.D);
    data_read(d, PAIR_REAL, n, 1);
    data_read(d, PAIR_REAL, n, 1);
    data_read(d, PAIR_FLOAT, (size_t)d->z.N, 1);
    data_read(d, PAIR_REAL, (size_t)d->z.D, 1);
    data_change(d, PAIR_REAL, n, 1);
    data_change(d, PAIR_FLOAT, (size_t)d->z.D, 1);
}

static void run_norm_backward(struct data *d, struct backend *be, int side) {
    be->norm_backward(be, P(4), P(5), P(0), P(1), P(2), P(3), d->z.N, d->z.D);
}

static double cost_norm_backward(const struct sizes *z, double r) {
    return 4.0 * z->N * z->D * r + 4.0 * z->N + z->D * (r + 8);
}

/* ---- products: those of queries, keys and values ---- */

static int width(const struct sizes *z) {
    return (z->H + 2 * z->G) * z->K;
}

static void make_matmul(struct data *d) {
    data_read(d, PAIR_REAL, area(d->z.N, d->z.D), 1);
    data_read(d, PAIR_REAL, area(width(&d->z), d->z.D), 1);
    data_write(d, PAIR_REAL, area(d->z.N, width(&d->z)));
}

static void run_matmul(struct data *d, struct backend *be, int side) {
    be->matmul(be, P(2), P(0), P(1), d->z.N, width(&d->z), d->z.D);
}

static void make_matmul_dx(struct data *d) {
    data_read(d, PAIR_REAL, area(d->z.N, width(&d->z)), 1);
    data_read(d, PAIR_REAL, area(width(&d->z), d->z.D), 1);
    data_write(d, PAIR_REAL, area(d->z.N, d->z.D));
}

static void run_matmul_dx(struct data *d, struct backend *be, int side) {
    be->matmul_dx(be, P(2), P(0), P(1), d->z.N, width(&d->z), d->z.D, /*accumulate=*/0);
}

static void make_matmul_dw(struct data *d) {
    data_read(d, PAIR_REAL, area(d->z.N, width(&d->z)), 1);
    data_read(d, PAIR_REAL, area(d->z.N, d->z.D), 1);
    data_write(d, PAIR_FLOAT, area(width(&d->z), d->z.D));
}

static void run_matmul_dw(struct data *d, struct backend *be, int side) {
    be->matmul_dw(be, P(2), P(0), P(1), d->z.N, width(&d->z), d->z.D, /*accumulate=*/0);
}

static double cost_matmul(const struct sizes *z, double r) {
    (void)r;
    return 2.0 * z->N * width(z) * z->D;
}

/* ---- attention ---- */

static struct attention_shape shape_of_attention(const struct sizes *z) {
    return (struct attention_shape){.H = z->H, .G = z->G, .K = z->K};
}

/* Pairs of a query and a key that it sees. */
static double pairs_seen(const struct sizes *z) {
    double whole = z->N / z->document, length = z->document, rest = z->N % z->document;
    return (whole * length * (length + 1) + rest * (rest + 1)) / 2;
}

static void set_documents(struct data *d, struct backend *be) {
    int n = (d->z.N + d->z.document - 1) / d->z.document;
    if (!d->cu_seqlens) {
        d->cu_seqlens = memory_alloc_array((size_t)n + 1, sizeof *d->cu_seqlens);
        for (int k = 1; k < n; k++) d->cu_seqlens[k] = k * d->z.document;
        d->cu_seqlens[n] = d->z.N;
    }
    be->documents(be, d->cu_seqlens, n);
}

static void make_rope(struct data *d) {
    int32_t *positions = memory_alloc_array((size_t)d->z.N, sizeof *positions);
    for (int k = 0; k < d->z.N; k++) positions[k] = k % d->z.document;
    data_ints(d, positions, (size_t)d->z.N);
    data_change(d, PAIR_REAL, area(d->z.N, width(&d->z)), 1);
    memory_free(positions);
}

static void run_rope(struct data *d, struct backend *be, int side) {
    be->rope(be, P(1), P(0), shape_of_attention(&d->z), 10000, d->z.N, /*inverse=*/0);
}

static double cost_rope(const struct sizes *z, double r) {
    return 2.0 * z->N * (z->H + z->G) * z->K * r + 4.0 * z->N;
}

static void make_attention(struct data *d) {
    data_read(d, PAIR_REAL, area(d->z.N, width(&d->z)), 1);
    data_write(d, PAIR_REAL, area(d->z.N, d->z.H * d->z.K));
    data_write(d, PAIR_FLOAT, area(d->z.N, d->z.H));
    for (int i = 0; i < 2; i++)
        if (d->s->be[i]) set_documents(d, d->s->be[i]);
}

static void run_attention(struct data *d, struct backend *be, int side) {
    be->attention(be, P(1), P(2), P(0), shape_of_attention(&d->z));
}

/* The two products of the forward pass; five of the backward pass. */
static double cost_attention(const struct sizes *z, double r) {
    (void)r;
    return 2 * 2.0 * z->H * z->K * pairs_seen(z);
}

static double cost_attention_backward(const struct sizes *z, double r) {
    (void)r;
    return 5 * 2.0 * z->H * z->K * pairs_seen(z);
}

static void make_attention_backward(struct data *d) {
    make_attention(d);
    data_read(d, PAIR_REAL, area(d->z.N, d->z.H * d->z.K), 1);
    for (int i = 0; i < 2; i++)
        if (d->s->be[i]) run_attention(d, d->s->be[i], i);
    pair_give(d->s, &d->p[1]);
    pair_give(d->s, &d->p[2]);
    d->results = 0;
    data_write(d, PAIR_REAL, area(d->z.N, width(&d->z)));
}

static void run_attention_backward(struct data *d, struct backend *be, int side) {
    be->attention_backward(be, P(4), P(3), P(1), P(2), P(0), shape_of_attention(&d->z));
}

/* ---- head ---- */

static void make_head(struct data *d) {
    data_random_ints(d, (size_t)d->z.N, d->z.V);
    data_read(d, PAIR_REAL, area(d->z.N, d->z.D), 1);
    data_read(d, PAIR_REAL, area(d->z.V, d->z.D), 1 / sqrtf((float)d->z.D));
    data_read(d, PAIR_FLOAT, (size_t)d->z.N, 1);
    data_change(d, PAIR_DOUBLE, 1, 0);
}

static void run_head(struct data *d, struct backend *be, int side) {
    be->head(be, NULL, NULL, P(4), NULL, P(1), P(2), P(0), P(3), NULL, d->z.N, d->z.V, d->z.D,
             /*accumulate=*/0);
}

static double cost_head(const struct sizes *z, double r) {
    (void)r;
    return 2.0 * z->N * z->V * z->D;
}

static void make_head_gradient(struct data *d) {
    make_head(d);
    data_write(d, PAIR_REAL, area(d->z.N, d->z.D));
    data_write(d, PAIR_FLOAT, area(d->z.V, d->z.D));
    data_read(d, PAIR_FLOAT, 1, 0.01f);
}

static void run_head_gradient(struct data *d, struct backend *be, int side) {
    be->head(be, P(5), P(6), P(4), NULL, P(1), P(2), P(0), P(3), P(7), d->z.N, d->z.V, d->z.D,
             /*accumulate=*/0);
}

static double cost_head_gradient(const struct sizes *z, double r) {
    return 3 * cost_head(z, r);
}

/* ---- optimizer: the parameters of one expert ---- */

static size_t parameters(const struct sizes *z) {
    return 3 * area(z->D, z->F);
}

static void make_add(struct data *d) {
    data_change(d, PAIR_FLOAT, parameters(&d->z), 1);
    data_read(d, PAIR_FLOAT, parameters(&d->z), 1);
}

static void run_add(struct data *d, struct backend *be, int side) {
    be->add(be, P(0), P(1), parameters(&d->z));
}

static double cost_add(const struct sizes *z, double r) {
    (void)r;
    return 12 * (double)parameters(z);
}

static void make_squares(struct data *d) {
    data_read(d, PAIR_FLOAT, parameters(&d->z), 1);
    data_change(d, PAIR_DOUBLE, 1, 0);
}

static void run_squares(struct data *d, struct backend *be, int side) {
    be->sum_squares(be, P(1), P(0), parameters(&d->z));
}

static double cost_squares(const struct sizes *z, double r) {
    (void)r;
    return 4 * (double)parameters(z);
}

static void make_adamw(struct data *d) {
    size_t n = parameters(&d->z);
    float factor = 0.5f;
    int32_t bits;
    data_change(d, PAIR_FLOAT, n, 1);
    data_write(d, PAIR_REAL, n);
    data_change(d, PAIR_FLOAT, n, 0.1f);
    data_change(d, PAIR_FLOAT, n, 0);
    data_read(d, PAIR_FLOAT, n, 1);
    memcpy(&bits, &factor, sizeof bits);
    data_ints(d, &bits, 1);
}

static void run_adamw(struct data *d, struct backend *be, int side) {
    const struct adamw a = {.lr = 1e-2f,
                            .beta1 = 0.9f,
                            .beta2 = 0.95f,
                            .eps = 1e-8f,
                            .decay = 0.1f,
                            .correction1 = 0.271f,
                            .correction2 = 0.142625f};
    be->adamw(be, P(0), P(1), P(2), P(3), P(4), P(5), parameters(&d->z), a);
}

/* Reads gradient, master and moments; writes master, moments and weight. */
static double cost_adamw(const struct sizes *z, double r) {
    return (28 + r) * (double)parameters(z);
}

const struct operation ops_dense[] = {
    {"copy", make_copy, run_copy, cost_copy, 0},
    {"square_matmul", make_square, run_square, cost_square, 1},
    {"embed", make_embed, run_embed, cost_embed, 0},
    {"embed_backward", make_embed_backward, run_embed_backward, cost_embed_backward, 0},
    {"add_norm", make_norm, run_norm, cost_norm, 0},
    {"norm_backward", make_norm_backward, run_norm_backward, cost_norm_backward, 0},
    {"matmul", make_matmul, run_matmul, cost_matmul, 1},
    {"matmul_dx", make_matmul_dx, run_matmul_dx, cost_matmul, 1},
    {"matmul_dw", make_matmul_dw, run_matmul_dw, cost_matmul, 1},
    {"rope", make_rope, run_rope, cost_rope, 0},
    {"attention", make_attention, run_attention, cost_attention, 1},
    {"attention_backward", make_attention_backward, run_attention_backward, cost_attention_backward,
     1},
    {"head_loss", make_head, run_head, cost_head, 1},
    {"head", make_head_gradient, run_head_gradient, cost_head_gradient, 1},
    {"add", make_add, run_add, cost_add, 0},
    {"sum_squares", make_squares, run_squares, cost_squares, 0},
    {"adamw", make_adamw, run_adamw, cost_adamw, 0},
};
const size_t n_ops_dense = sizeof ops_dense / sizeof *ops_dense;
