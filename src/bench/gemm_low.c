/* `bench gemm` in eight bits. One array of each kind serves all products; what they compute is
 * not looked at here. */
#include "config.h"
#include "backend/cuda.h"
#include "base/memory.h"
#include "bench/contest.h"
#include "bench/gemm.h"
#include "bench/pair.h"
#include "bench/routing.h"
#include "grouped_fp8.h"
#include "quantise.h"
#include <math.h>
#include <string.h>

/* Letters as in grouped_gemm.h, and the same matrices in eight bits, by rows (8) and by columns (t,
 * weights transposed). */
struct bed {
    struct backend *be;
    struct sizes z;
    struct sides sides;
    struct grouped_rows r;
    int64_t useful;
    struct pair offsets, p, x, dy, zed, h, up, down, dw, parts;
    void *work; /* of cuBLASLt */
    cublasLtHandle_t lt;
    struct fp8_matrix x8, xt, dy8, dyt, h8, ht, z8, zt, up8, upt, down8, downt; /* z8: dz */
    struct fp8_matrix kept8;                                                    /* z */
};

enum { WORK = 64 << 20 };

static struct grouped *kernels(const struct bed *b) {
    return cuda_state(b->be)->grouped;
}

static cudaStream_t stream(const struct bed *b) {
    return cuda_state(b->be)->stream;
}

/* ---- products ---- */

enum lie { ROWS_NT, ROWS_NN, GRADIENT };

struct product {
    const char *name;
    enum lie lie;
    int is_up, add; /* n = 2F, k = D; else n = D, k = F: w[E, n, k]. 2, 3: with the activation; 3:
                       z in eight bits */
};
static const struct product products[] = {{"up, activation", ROWS_NT, 2, 0},
                                          {"the same, z in eight bits", ROWS_NT, 3, 0},
                                          {"up", ROWS_NT, 1, 0},
                                          {"down", ROWS_NT, 0, 0},
                                          {"down backward", ROWS_NN, 0, 0},
                                          {"up backward", ROWS_NN, 1, 0},
                                          {"down weights", GRADIENT, 0, 0},
                                          {"down weights, added", GRADIENT, 0, 1},
                                          {"up weights", GRADIENT, 1, 0},
                                          {"up weights, added", GRADIENT, 1, 1}};
enum { N_PRODUCTS = sizeof products / sizeof *products };

struct call {
    struct bed *b;
    const struct product *p;
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t a, w, c;
    cublasLtMatmulAlgo_t how;
};

static struct fp8_z kept(const struct bed *b, int low) {
    return low ? (struct fp8_z){.low = b->kept8} : (struct fp8_z){.bf16 = b->zed.at[1]};
}

static void run_low(void *context) {
    struct call *c = context;
    struct bed *b = c->b;
    int up = c->p->is_up, D = b->z.D, F = b->z.F, N = up ? 2 * F : D, K = up ? D : F;
    if (up >= 2)
        grouped_fp8_up(kernels(b), kept(b, up == 3), b->h8, b->x8, b->up8, b->p.at[1], b->r, D, F,
                       stream(b));
    else if (c->p->lie == ROWS_NT)
        grouped_fp8_forward(kernels(b), up ? b->zed.at[1] : b->dy.at[1], up ? b->x8 : b->h8,
                            up ? b->up8 : b->down8, b->r, N, K, stream(b));
    else if (c->p->lie == ROWS_NN)
        grouped_fp8_forward(kernels(b), up ? b->dy.at[1] : b->h.at[1], up ? b->z8 : b->dy8,
                            up ? b->upt : b->downt, b->r, K, N, stream(b));
    else
        grouped_fp8_weights(kernels(b), gradient_whole(b->dw.at[1], c->p->add), up ? b->zt : b->dyt,
                            up ? b->xt : b->ht, b->r, N, K, stream(b));
}

static void run_bf16(void *context) {
    struct call *c = context;
    struct bed *b = c->b;
    int up = c->p->is_up, D = b->z.D, F = b->z.F, N = up ? 2 * F : D, K = up ? D : F;
    void *w = up ? b->up.at[1] : b->down.at[1];
    if (up >= 2)
        grouped_up(kernels(b), b->zed.at[1], b->h.at[1], b->x.at[1], w, b->p.at[1], b->r, D, F,
                   stream(b));
    else if (c->p->lie == ROWS_NT)
        grouped_forward(kernels(b), up ? b->zed.at[1] : b->dy.at[1], up ? b->x.at[1] : b->h.at[1],
                        w, b->r, N, K, stream(b));
    else if (c->p->lie == ROWS_NN)
        grouped_backward(kernels(b), up ? b->dy.at[1] : b->h.at[1], up ? b->zed.at[1] : b->dy.at[1],
                         w, b->r, N, K, stream(b));
    else
        grouped_weights(kernels(b), gradient_whole(b->dw.at[1], c->p->add),
                        up ? b->zed.at[1] : b->dy.at[1], up ? b->x.at[1] : b->h.at[1], b->r, N, K,
                        stream(b));
}

/* ---- one dense product of cuBLASLt's, with the same kinds of scales ---- */

/* As c[M, N] = a[M, K] w[N, K]^T, K innermost in both. */
static void dense_sizes(const struct bed *b, const struct product *p, int *M, int *N, int *K) {
    int n = p->is_up ? 2 * b->z.F : b->z.D, k = p->is_up ? b->z.D : b->z.F, R = b->r.rows;
    *M = p->lie == GRADIENT ? n : R;
    *N = p->lie == ROWS_NT ? n : k;
    *K = p->lie == ROWS_NT ? k : p->lie == ROWS_NN ? n : R;
}

static void run_dense(void *context) {
    struct call *c = context;
    struct bed *b = c->b;
    const struct product *p = c->p;
    int up = p->is_up;
    struct fp8_matrix a = p->lie == ROWS_NT   ? up ? b->x8 : b->h8
                          : p->lie == ROWS_NN ? up ? b->z8 : b->dy8
                          : up                ? b->zt
                                              : b->dyt,
                      w = p->lie == ROWS_NT   ? up ? b->up8 : b->down8
                          : p->lie == ROWS_NN ? up ? b->upt : b->downt
                          : up                ? b->xt
                                              : b->ht;
    void *to = p->lie == GRADIENT         ? b->dw.at[1]
               : p->lie == ROWS_NT && up  ? b->zed.at[1]
               : p->lie == ROWS_NN && !up ? b->h.at[1]
                                          : b->dy.at[1];
#if CUBLAS_VERSION >= 120900
    float one = 1, beta = (float)p->add;
    cublasLtMatmulDescSetAttribute(c->what, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &w.scales,
                                   sizeof w.scales);
    cublasLtMatmulDescSetAttribute(c->what, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a.scales,
                                   sizeof a.scales);
    if (cublasLtMatmul(b->lt, c->what, &one, w.codes, c->w, a.codes, c->a, &beta, to, c->c, to,
                       c->c, &c->how, b->work, WORK, stream(b)) != CUBLAS_STATUS_SUCCESS)
        die("cublasLtMatmul in eight bits");
#else
    (void)a, (void)w, (void)to;
#endif
}

/* 1: cuBLASLt has it; row-major matrices are its column-major ones transposed. */
static int dense_open(struct call *c) {
#if CUBLAS_VERSION >= 120900 /* the first with such scales */
    struct bed *b = c->b;
    int M, N, K, n = 0;
    size_t room = WORK;
    cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulMatrixScale_t square = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
                                line = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t found = {0};
    dense_sizes(b, c->p, &M, &N, &K);
    cublasLtMatmulDescCreate(&c->what, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(c->what, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                   sizeof transposed);
    cublasLtMatmulDescSetAttribute(c->what, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &square,
                                   sizeof square);
    cublasLtMatmulDescSetAttribute(c->what, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &line, sizeof line);
    cublasLtMatmulDescSetAttribute(c->what, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b->up8.scales,
                                   sizeof b->up8.scales);
    cublasLtMatmulDescSetAttribute(c->what, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &b->x8.scales,
                                   sizeof b->x8.scales);
    cublasLtMatrixLayoutCreate(&c->w, CUDA_R_8F_E4M3, (uint64_t)K, (uint64_t)N, K);
    cublasLtMatrixLayoutCreate(&c->a, CUDA_R_8F_E4M3, (uint64_t)K, (uint64_t)M, K);
    cublasLtMatrixLayoutCreate(&c->c, c->p->lie == GRADIENT ? CUDA_R_32F : CUDA_R_16BF, (uint64_t)N,
                               (uint64_t)M, N);
    cublasLtMatmulPreferenceCreate(&wish);
    cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room,
                                         sizeof room);
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(b->lt, c->what, c->w, c->a, c->c, c->c, wish, 1, &found, &n);
    cublasLtMatmulPreferenceDestroy(wish);
    c->how = found.algo;
    return status == CUBLAS_STATUS_SUCCESS && n > 0;
#else
    (void)c;
    return 0;
#endif
}

static void dense_close(struct call *c) {
    if (!c->what) return;
    cublasLtMatrixLayoutDestroy(c->a);
    cublasLtMatrixLayoutDestroy(c->w);
    cublasLtMatrixLayoutDestroy(c->c);
    cublasLtMatmulDescDestroy(c->what);
}

/* ---- passes that round ---- */

static const struct fp8_matrix none;

static void round_x(void *context) {
    struct bed *b = context;
    quantise_rows(b->x8, none, 0, b->x.at[1], b->r, b->z.D, stream(b));
}
static void round_x_columns(void *context) {
    struct bed *b = context;
    quantise_rows(none, b->xt, 1, b->x.at[1], b->r, b->z.D, stream(b));
}
static void round_dy(void *context) {
    struct bed *b = context;
    quantise_rows(b->dy8, b->dyt, 0, b->dy.at[1], b->r, b->z.D, stream(b));
}
static void round_dz_of(struct bed *b, int low) {
    struct pair *parts = &b->parts;
    quantise_swiglu(b->z8, b->zt, b->ht, parts->at[1], (float *)parts->at[1] + b->r.rows,
                    b->h.at[1], kept(b, low), b->p.at[1], b->r, b->z.F, stream(b));
}
static void round_dz(void *context) {
    round_dz_of(context, 0);
}
static void round_dz_of_low(void *context) {
    round_dz_of(context, 1);
}
static void round_weights(void *context) {
    struct bed *b = context;
    quantise_weights(b->up8, b->upt, b->up.at[1], b->z.E, 2 * b->z.F, b->z.D, stream(b));
    quantise_weights(b->down8, b->downt, b->down.at[1], b->z.E, b->z.D, b->z.F, stream(b));
}

/* Bytes: of an element of D or of F of a row, of one of a matrix of an expert [D, F]. */
static const struct pass {
    const char *name;
    void (*run)(void *context);
    int of_D, of_F, of_matrix;
} passes[] = {{"rows", round_x, 3, 0, 0},
              {"rows, for weights", round_x_columns, 3, 0, 0},
              {"gradient of results", round_dy, 4, 0, 0},
              {"activation backward", round_dz, 0, 11, 0},
              {"the same, z in eight bits", round_dz_of_low, 0, 9, 0},
              {"weights, once a step", round_weights, 0, 0, 12}};
enum { N_PASSES = sizeof passes / sizeof *passes };

/* ---- the table ---- */

static struct fp8_matrix matrix(struct backend *be, size_t elements) {
    char *p = be->alloc(be, elements + elements / GROUPED_FP8_UNIT * sizeof(float));
    return (struct fp8_matrix){(uint8_t *)p, (float *)(p + elements)};
}

static void lay_out(struct bed *b, const double *weights) {
    int E = b->z.E;
    int32_t *offsets = memory_alloc_array((size_t)E + 1, sizeof *offsets);
    int64_t *counts = memory_alloc_array((size_t)E, sizeof *counts);
    b->useful = (int64_t)b->z.N * b->z.A;
    routing_counts(weights, counts, E, b->useful);
    routing_offsets(counts, offsets, E, GROUPED_FP8_ROWS);
    b->offsets = pair_ints(&b->sides, offsets, (size_t)E + 1);
    b->r = (struct grouped_rows){.offsets = b->offsets.at[1], .E = E, .rows = offsets[E]};
    memory_free(offsets);
    memory_free(counts);
}

static void make(struct bed *b, const double *weights) {
    struct sides *s = &b->sides;
    lay_out(b, weights);
    size_t D = (size_t)b->z.D, F = (size_t)b->z.F, EDF = (size_t)b->z.E * D * F,
           R = (size_t)b->r.rows;
    b->p = pair_normal(s, PAIR_FLOAT, R, 0.5f);
    b->x = pair_normal(s, PAIR_REAL, R * D, 1), b->dy = pair_normal(s, PAIR_REAL, R * D, 1);
    b->zed = pair_normal(s, PAIR_REAL, 2 * R * F, 1), b->h = pair_normal(s, PAIR_REAL, R * F, 1);
    b->up = pair_normal(s, PAIR_REAL, 2 * EDF, 1 / 64.0f);
    b->down = pair_normal(s, PAIR_REAL, EDF, 1 / 64.0f);
    b->dw = pair_zeros(s, PAIR_FLOAT, 2 * EDF);
    b->parts = pair_zeros(s, PAIR_FLOAT, R + fp8_parts(R, b->z.F) / sizeof(float));
    b->work = b->be->alloc(b->be, WORK);
    struct fp8_matrix *all[] = {&b->x8, &b->xt, &b->dy8, &b->dyt, &b->h8,    &b->ht,
                                &b->z8, &b->zt, &b->up8, &b->upt, &b->down8, &b->downt};
    const size_t sizes[] = {R * D,     R * D,     R * D,   R * D,   R * F, R * F,
                            2 * R * F, 2 * R * F, 2 * EDF, 2 * EDF, EDF,   EDF};
    for (int i = 0; i < 12; i++) *all[i] = matrix(b->be, sizes[i]);
    b->kept8 = matrix(b->be, 2 * R * F);
    quantise_rows(b->kept8, none, 0, b->zed.at[1], b->r, 2 * b->z.F, stream(b));
    for (int i = 0; i < N_PASSES; i++) passes[i].run(b);
    run_low(&(struct call){b, &products[0], 0, 0, 0, 0, {{0}}}); /* h */
    if (cublasLtCreate(&b->lt) != CUBLAS_STATUS_SUCCESS) die("cublasLtCreate");
}

static void drop(struct bed *b) {
    struct pair *all[] = {&b->offsets, &b->p,  &b->x,    &b->dy, &b->zed,
                          &b->h,       &b->up, &b->down, &b->dw, &b->parts};
    struct fp8_matrix low[] = {b->x8, b->xt,  b->dy8, b->dyt,   b->h8,    b->ht,   b->z8,
                               b->zt, b->up8, b->upt, b->down8, b->downt, b->kept8};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pair_free(&b->sides, all[i]);
    for (size_t i = 0; i < sizeof low / sizeof *low; i++) b->be->release(b->be, low[i].codes);
    b->be->release(b->be, b->work);
    cublasLtDestroy(b->lt);
}

static void time_product(struct bed *b, const struct product *p, const struct gemm_wish *wish,
                         FILE *csv) {
    struct call c = {.b = b, .p = p};
    int dense = dense_open(&c);
    const struct contender list[] = {
        {b->be, run_low, &c}, {b->be, run_bf16, &c}, {b->be, run_dense, &c}};
    double s[3] = {0}, rate[3] = {0},
           flops = 2.0 * (double)b->useful * b->z.D * b->z.F * (p->is_up ? 2 : 1);
    contest(list, dense ? 3 : 2, wish->seconds, s);
    for (int k = 0; k < (dense ? 3 : 2); k++) rate[k] = flops / s[k] / 1e12;
    printf("%-26s %8.1f ", p->name, rate[0]);
    if (dense)
        printf("%8.1f %8.1f %8.3f ", rate[2], rate[1], rate[0] / rate[2]);
    else
        printf("%8s %8.1f %8s ", "-", rate[1], "-");
    printf("%8.3f\n", rate[0] / rate[1]);
    fflush(stdout);
    if (csv)
        fprintf(csv, dense ? "%s,\"%s\",%.2f,%.2f,%.2f\n" : "%s,\"%s\",%.2f,%.0f,%.2f\n",
                wish->routing, p->name, rate[0], dense ? rate[2] : NAN, rate[1]);
    dense_close(&c);
}

static void time_pass(struct bed *b, const struct pass *p, const struct gemm_wish *wish) {
    const struct contender one = {b->be, p->run, b};
    double s, R = b->r.rows, D = b->z.D, F = b->z.F,
              bytes = R * (D * p->of_D + F * p->of_F) + b->z.E * D * F * p->of_matrix;
    contest(&one, 1, wish->seconds / 2, &s);
    printf("%-26s %8.1f us %8.2f TB/s\n", p->name, s * 1e6, bytes / s / 1e12);
}

void gemm_low_run(struct backend *be, const struct sizes *z, const struct gemm_wish *wish,
                  FILE *csv) {
    struct bed b = {.be = be, .z = *z, .sides = {.be = {NULL, be}}};
    make(&b, wish->weights);
    printf("# backend %s (%s); %s\n# N %d, D %d, F %d, E %d, A %d, routing %s: %d rows with those "
           "that pad; fp8_block\n",
           be->name, be->details, be->engines, z->N, z->D, z->F, z->E, z->A, wish->routing,
           b.r.rows);
    printf("%-26s %8s %8s %8s %8s %8s\n", "# TFLOP/s", "fp8", "dense", "bf16", "/dense", "/bf16");
    if (csv) fprintf(csv, "routing,product,fp8_tflops,dense_tflops,bf16_tflops\n");
    for (int i = 0; i < N_PRODUCTS; i++)
        if (!wish->only || strstr(products[i].name, wish->only))
            time_product(&b, &products[i], wish, csv);
    if (!wish->only) printf("# rounding, by the bytes read and written\n");
    for (int i = 0; i < N_PASSES && !wish->only; i++) time_pass(&b, &passes[i], wish);
    drop(&b);
}
