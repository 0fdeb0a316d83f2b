#include "config.h"
#include "bench/gemm.h"
#include "backend/cuda.h"
#include "base/memory.h"
#include "bench/contest.h"
#include "bench/pair.h"
#include "bench/routing.h"
#include "grouped_gemm.h"
#include <string.h>

/* Letters as in grouped_gemm.h; host_first: where each expert's rows begin. */
struct bed {
    struct backend *be;
    struct sizes z;
    struct sides sides;
    struct grouped_rows r;
    int64_t useful, *counts;
    int32_t *host_first;
    struct pair offsets, p, narrow, wide, inner, small, dp, dw, parts;
    void *x, *dy, *z_in, *z_out, *h, *up, *down;
    void *flat_x, *flat_dy, *flat_z, *flat_h; /* the same without rows that pad, for dense */
};

/* How a product lies: rows by weights transposed, by weights, or weights' gradients. */
enum lie { ROWS_NT, ROWS_NN, GRADIENT };

struct product {
    const char *name;
    enum lie lie;
    int is_up; /* n = 2F, k = D; else n = D, k = F: w[E, n, k] */
    int add;
    void (*ours)(struct bed *b);
};

static struct grouped *kernels(const struct bed *b) {
    return cuda_state(b->be)->grouped;
}

static cudaStream_t stream(const struct bed *b) {
    return cuda_state(b->be)->stream;
}

static void up(struct bed *b) {
    grouped_up(kernels(b), b->z_out, b->h, b->x, b->up, b->p.at[1], b->r, b->z.D, b->z.F,
               stream(b));
}

static void up_plain(struct bed *b) {
    grouped_forward(kernels(b), b->z_out, b->x, b->up, b->r, 2 * b->z.F, b->z.D, stream(b));
}

static void down(struct bed *b) {
    grouped_forward(kernels(b), b->small.at[1], b->h, b->down, b->r, b->z.D, b->z.F, stream(b));
}

static void down_backward(struct bed *b) {
    grouped_down_backward(kernels(b), b->z_out, b->h, b->dp.at[1], b->parts.at[1], b->dy, b->z_in,
                          b->down, b->p.at[1], b->r, b->z.D, b->z.F, stream(b));
}

static void down_plain(struct bed *b) {
    grouped_backward(kernels(b), b->h, b->dy, b->down, b->r, b->z.D, b->z.F, stream(b));
}

static void up_backward(struct bed *b) {
    grouped_backward(kernels(b), b->small.at[1], b->z_in, b->up, b->r, 2 * b->z.F, b->z.D,
                     stream(b));
}

static void down_weights(struct bed *b) {
    grouped_weights(kernels(b), gradient_whole(b->dw.at[1], /*add=*/0), b->dy, b->h, b->r, b->z.D,
                    b->z.F, stream(b));
}

static void down_weights_add(struct bed *b) {
    grouped_weights(kernels(b), gradient_whole(b->dw.at[1], /*add=*/1), b->dy, b->h, b->r, b->z.D,
                    b->z.F, stream(b));
}

static void up_weights(struct bed *b) {
    grouped_weights(kernels(b), gradient_whole(b->dw.at[1], /*add=*/0), b->z_in, b->x, b->r,
                    2 * b->z.F, b->z.D, stream(b));
}

static void up_weights_add(struct bed *b) {
    grouped_weights(kernels(b), gradient_whole(b->dw.at[1], /*add=*/1), b->z_in, b->x, b->r,
                    2 * b->z.F, b->z.D, stream(b));
}

static const struct product products[] = {
    {"up, activation", ROWS_NT, 1, 0, up},
    {"up", ROWS_NT, 1, 0, up_plain},
    {"down", ROWS_NT, 0, 0, down},
    {"down backward, activation", ROWS_NN, 0, 0, down_backward},
    {"down backward", ROWS_NN, 0, 0, down_plain},
    {"up backward", ROWS_NN, 1, 0, up_backward},
    {"down weights", GRADIENT, 0, 0, down_weights},
    {"down weights, added", GRADIENT, 0, 1, down_weights_add},
    {"up weights", GRADIENT, 1, 0, up_weights},
    {"up weights, added", GRADIENT, 1, 1, up_weights_add},
};
enum { N_PRODUCTS = sizeof products / sizeof *products };

/* What is timed. */
struct call {
    struct bed *b;
    const struct product *p;
};

static void run_ours(void *context) {
    struct call *c = context;
    c->p->ours(c->b);
}

/* One product of cuBLASLt's over rows [first, first + n) and the matrix of expert e. */
static void run_one(const struct call *c, int way, int64_t first, int64_t n, int e) {
    const struct bed *b = c->b;
    struct backend *be = b->be;
    int up = c->p->is_up, N = up ? 2 * b->z.F : b->z.D, K = up ? b->z.D : b->z.F, R = (int)n;
    const void *w = real_at(be, up ? b->up : b->down, (size_t)e * area(N, K)),
               *in = up ? b->x : b->h, *back = up ? b->z_in : b->dy;
    void *out = up ? b->z_out : b->small.at[1], *out_back = up ? b->small.at[1] : b->h;
    float *dw = (float *)b->dw.at[1] + (size_t)e * area(N, K);
    size_t at_n = (size_t)first * (size_t)N, at_k = (size_t)first * (size_t)K;
    switch (c->p->lie) {
    case ROWS_NT:
        cuda_gemm(be, way, CUDA_NO_TRANSPOSE, CUDA_TRANSPOSE, R, N, K, real_at(be, in, at_k), w, 0,
                  real_at(be, out, at_n), /*c_fp32=*/0);
        break;
    case ROWS_NN:
        cuda_gemm(be, way, CUDA_NO_TRANSPOSE, CUDA_NO_TRANSPOSE, R, K, N, real_at(be, back, at_n),
                  w, 0, real_at(be, out_back, at_k), /*c_fp32=*/0);
        break;
    case GRADIENT:
        cuda_gemm(be, way, CUDA_TRANSPOSE, CUDA_NO_TRANSPOSE, N, K, R, real_at(be, back, at_n),
                  real_at(be, in, at_k), c->p->add ? 1 : 0, dw, /*c_fp32=*/1);
    }
}

static void run_dense(void *context) {
    struct call *c = context;
    struct bed *b = c->b, flat = *b;
    flat.x = b->flat_x, flat.dy = b->flat_dy, flat.z_in = b->flat_z, flat.h = b->flat_h;
    run_one(&(struct call){&flat, c->p}, 0, 0, b->useful, 0);
}

static void run_each(void *context) {
    struct call *c = context;
    struct bed *b = c->b;
    cuda_fork(b->be);
    for (int e = 0; e < b->z.E; e++)
        run_one(c, 1 + e % CUDA_SIDES, b->host_first[e], b->counts[e], e);
    cuda_join(b->be);
}

/* The rows that pad an expert's are zero. */
static void clear_pads(struct bed *b, void *x, int cols) {
    struct backend *be = b->be;
    for (int e = 0; e < b->z.E; e++) {
        size_t end = (size_t)(b->host_first[e] + b->counts[e]),
               n = (size_t)b->host_first[e + 1] - end;
        be->zero(be, real_at(be, x, end * (size_t)cols), n * (size_t)cols * be->real_bytes);
    }
}

static void lay_out(struct bed *b, const double *weights) {
    int E = b->z.E;
    b->counts = memory_alloc_array((size_t)E, sizeof *b->counts);
    b->host_first = memory_alloc_array((size_t)E + 1, sizeof *b->host_first);
    b->useful = (int64_t)b->z.N * b->z.A;
    routing_counts(weights, b->counts, E, b->useful);
    routing_offsets(b->counts, b->host_first, E, GROUPED_ROWS);
    b->offsets = pair_ints(&b->sides, b->host_first, (size_t)E + 1);
}

static void make(struct bed *b, const double *weights) {
    struct sides *s = &b->sides;
    size_t D = (size_t)b->z.D, F = (size_t)b->z.F, E = (size_t)b->z.E;
    lay_out(b, weights);
    size_t R = (size_t)b->host_first[E];
    b->r = (struct grouped_rows){.offsets = b->offsets.at[1], .E = b->z.E, .rows = (int)R};
    b->p = pair_normal(s, PAIR_FLOAT, R, 0.5f);
    b->narrow = pair_normal(s, PAIR_REAL, 4 * R * D, 1);
    b->wide = pair_normal(s, PAIR_REAL, 6 * R * F, 1);
    b->inner = pair_normal(s, PAIR_REAL, 2 * R * F + 3 * E * D * F, 1 / 64.0f);
    b->small = pair_zeros(s, PAIR_REAL, R * D);
    b->dp = pair_zeros(s, PAIR_FLOAT, R);
    b->dw = pair_zeros(s, PAIR_FLOAT, 2 * E * D * F);
    b->parts = pair_zeros(s, PAIR_FLOAT, grouped_parts(R, b->z.F) / sizeof(float));
    b->x = b->narrow.at[1], b->dy = real_at(b->be, b->x, R * D);
    b->z_in = b->wide.at[1], b->z_out = real_at(b->be, b->z_in, 2 * R * F);
    b->h = b->inner.at[1], b->up = real_at(b->be, b->h, R * F);
    b->down = real_at(b->be, b->up, 2 * E * D * F);
    b->flat_x = real_at(b->be, b->x, 2 * R * D), b->flat_dy = real_at(b->be, b->x, 3 * R * D);
    b->flat_z = real_at(b->be, b->z_in, 4 * R * F);
    b->flat_h = real_at(b->be, b->down, E * D * F);
    clear_pads(b, b->x, b->z.D);
    clear_pads(b, b->dy, b->z.D);
    clear_pads(b, b->z_in, 2 * b->z.F);
    clear_pads(b, b->h, b->z.F);
}

static void drop(struct bed *b) {
    struct pair *all[] = {&b->offsets, &b->p,  &b->narrow, &b->wide, &b->inner,
                          &b->small,   &b->dp, &b->dw,     &b->parts};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pair_free(&b->sides, all[i]);
    memory_free(b->counts);
    memory_free(b->host_first);
}

void gemm_run(struct backend *be, const struct sizes *z, const struct gemm_wish *wish, FILE *csv) {
    struct bed b = {.be = be, .z = *z, .sides = {.be = {NULL, be}}};
    make(&b, wish->weights);
    printf("# backend %s (%s); %s\n# N %d, D %d, F %d, E %d, A %d, routing %s: %d rows with those "
           "that pad\n",
           be->name, be->details, be->engines, z->N, z->D, z->F, z->E, z->A, wish->routing,
           b.r.rows);
    printf("%-26s %8s %8s %8s %8s %8s\n", "# TFLOP/s", "grouped", "dense", "each", "/dense",
           "/each");
    if (csv) fprintf(csv, "routing,product,grouped_tflops,dense_tflops,each_tflops\n");
    for (int i = 0; i < N_PRODUCTS; i++) {
        if (wish->only && !strstr(products[i].name, wish->only)) continue;
        struct call c = {&b, &products[i]};
        const struct contender list[] = {
            {be, run_ours, &c}, {be, run_dense, &c}, {be, run_each, &c}};
        double s[3], rate[3],
            flops = 2.0 * (double)b.useful * z->D * z->F * (products[i].is_up ? 2 : 1);
        contest(list, 3, wish->seconds, s);
        for (int k = 0; k < 3; k++) rate[k] = flops / s[k] / 1e12;
        printf("%-26s %8.1f %8.1f %8.1f %8.3f %8.3f\n", products[i].name, rate[0], rate[1], rate[2],
               rate[0] / rate[1], rate[0] / rate[2]);
        fflush(stdout);
        if (csv)
            fprintf(csv, "%s,\"%s\",%.2f,%.2f,%.2f\n", wish->routing, products[i].name, rate[0],
                    rate[1], rate[2]);
    }
    drop(&b);
}
