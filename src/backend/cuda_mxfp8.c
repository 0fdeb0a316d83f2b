/* MXFP8 by cuBLASLt, on compute capability 10.0 and later: what is multiplied lies in E4M3, with
 * scales where mxfp8_scales.h has them. All products are of two operands that lie with what is
 * summed over next to each other, so some are needed transposed, too, each rounded for itself from
 * BF16. The experts have a product each, whose rows the host counts (cuda_each.c); they begin at
 * multiples of 128, so that a tile of scales is of one of them. With engine.experts `grouped` gate
 * and up of all of them are one launch (mxfp8_up.h), which leaves h in MXFP8.
 *
 * Compiled, and tested with another's products in place of cuBLASLt's (tests/mxfp8_products.c);
 * never run on a GPU that has them; nor has that kernel. */
#include "config.h"
#include "backend/cuda.h"
#include "base/log.h"
#include "mxfp8.h"
#include "mxfp8_pack.h"
#include "mxfp8_up.h"
#include "swiglu.h"
#include <assert.h>

static const struct mxfp8_matrix none;

/* Its codes, and behind them its scales. */
static struct mxfp8_matrix matrix_at(const void *p, size_t codes) {
    uint8_t *at = (void *)(uintptr_t)p;
    return (struct mxfp8_matrix){at, at + cuda_scales_at(codes)};
}

static struct mxfp8_matrix room(struct backend *be, enum cuda_mxfp8_room which, size_t rows,
                                int cols) {
    return matrix_at(cuda_state(be)->mxfp8[which], mxfp8_codes(1, rows, (size_t)cols));
}

/* ---- weights w[n, N, K]: as they are, [N, K] each, and transposed, [K, N] each ---- */

static struct mxfp8_matrix as_is(const real_t *copies, int n, int N, int K) {
    return matrix_at(copies, mxfp8_codes((size_t)n, (size_t)N, (size_t)K));
}

static struct mxfp8_matrix transposed(const real_t *copies, int n, int N, int K) {
    return as_is((const char *)copies + cuda_mxfp8_bytes((size_t)n, (size_t)N, (size_t)K), n, N, K);
}

static void weights(struct backend *be, void *copies, const real_t *w, int n, int N, int K) {
    mxfp8_pack(as_is(copies, n, N, K), transposed(copies, n, N, K), w,
               (struct mxfp8_set){.n = n, .rows = N}, K, cuda_state(be)->stream);
}

/* The matrix of one expert, either way. */
static struct mxfp8_matrix of_expert(struct mxfp8_matrix m, int e, int N, int K) {
    size_t n = (size_t)e;
    return (struct mxfp8_matrix){m.codes + mxfp8_codes(n, (size_t)N, (size_t)K),
                                 m.scales + mxfp8_scales(n, (size_t)N, (size_t)K)};
}

/* ---- experts ---- */

/* Those of an expert's rows, either way; `first` is a multiple of 128. */
static struct mxfp8_matrix from_row(struct mxfp8_matrix m, int first, int cols) {
    return of_expert(m, 1, first, cols);
}

static int n_rows(const struct cuda_rows *r) {
    return r->host_offsets[r->n_local];
}

/* x[rows, cols] of all experts, by row and transposed, or one of both (`none`). */
static void pack_rows(struct backend *be, const struct cuda_rows *r, struct mxfp8_matrix by_row,
                      struct mxfp8_matrix by_col, const real_t *x, int cols) {
    mxfp8_pack(by_row, by_col, x,
               (struct mxfp8_set){.offsets = r->offsets, .n = r->n_local, .rows = n_rows(r)}, cols,
               cuda_state(be)->stream);
}

/* For each expert c[., N] = a[., K] w[N, K]^T */
static void each_rows(struct backend *be, const struct cuda_rows *r, struct mxfp8_matrix a,
                      struct mxfp8_matrix w, int N, int K, real_t *c) {
    cuda_fork(be);
    for (int e = 0; e < r->n_local; e++) {
        int first = r->host_offsets[e];
        cuda_gemm_mxfp8(be, 1 + e % CUDA_SIDES, r->host_offsets[e + 1] - first, N, K,
                        from_row(a, first, K), of_expert(w, e, N, K), 0,
                        real_at(be, c, (size_t)first * (size_t)N), /*c_fp32=*/0);
    }
    cuda_join(be);
}

/* dw[e][M, N] (+)= a b^T, a[M, .] and b[N, .] of the expert's rows */
static void each_weights(struct backend *be, const struct cuda_rows *r, struct mxfp8_matrix a,
                         struct mxfp8_matrix b, int M, int N, struct gradient dw) {
    assert(!dw.own);
    cuda_fork(be);
    for (int e = 0; e < r->n_local; e++) {
        int first = r->host_offsets[e];
        cuda_gemm_mxfp8(be, 1 + e % CUDA_SIDES, M, N, r->host_offsets[e + 1] - first,
                        from_row(a, first, M), from_row(b, first, N), dw.add,
                        dw.whole + (size_t)e * (size_t)M * (size_t)N, /*c_fp32=*/1);
    }
    cuda_join(be);
}

/* h in the place of as many values in BF16. */
static struct mxfp8_matrix packed_h(const struct cuda_rows *r, const real_t *h) {
    return matrix_at(h, mxfp8_codes(1, r->most, (size_t)r->shape.F));
}

static void up(struct backend *be, const struct cuda_rows *r, real_t *z, real_t *h,
               const real_t *rows, const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    int D = r->shape.D, F = r->shape.F;
    struct mxfp8_matrix x = room(be, CUDA_MXFP8_ROWS, r->most, D);
    struct mxfp8_matrix up8 = as_is(w, r->n_local, 2 * F, D);
    pack_rows(be, r, x, none, rows, D);
    if (s->mxfp8_up) {
        mxfp8_up_run(s->mxfp8_up, z, packed_h(r, h), x, up8, r->row_p, r->offsets, r->n_local,
                     n_rows(r), D, F, s->stream);
    } else {
        each_rows(be, r, x, up8, 2 * F, D, z);
        swiglu_forward(s->real, h, z, r->row_p, n_rows(r), NULL, F, s->stream);
    }
    if (be->low_z) /* gate and up are multiples of a block */
        mxfp8_round(z, z, MXFP8_ALONG_ROWS, (struct mxfp8_rows){.rows = n_rows(r)}, 2 * F,
                    s->stream);
}

static void down(struct backend *be, const struct cuda_rows *r, real_t *y, const real_t *h,
                 const real_t *w) {
    int D = r->shape.D, F = r->shape.F;
    struct mxfp8_matrix h8 = packed_h(r, h);
    if (!cuda_state(be)->mxfp8_up) {
        h8 = room(be, CUDA_MXFP8_ROWS, r->most, F);
        pack_rows(be, r, h8, none, h, F);
    }
    each_rows(be, r, h8, as_is(w, r->n_local, D, F), D, F, y);
}

static void down_backward(struct backend *be, const struct cuda_rows *r, real_t *dz, float *dp_rows,
                          struct gradient ddown, const real_t *dy, const real_t *z, real_t *h,
                          const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    int D = r->shape.D, F = r->shape.F;
    struct mxfp8_matrix dy_rows = room(be, CUDA_MXFP8_ROWS, r->most, D),
                        dy_columns = room(be, CUDA_MXFP8_GRADIENTS, r->most, D),
                        h_columns = room(be, CUDA_MXFP8_COLUMNS, r->most, F);
    pack_rows(be, r, dy_rows, dy_columns, dy, D);
    each_rows(be, r, dy_rows, transposed(w, r->n_local, D, F), F, D, h); /* h holds dh */
    swiglu_backward(s->real, dz, dp_rows, h, h, z, r->row_p, n_rows(r), NULL, F, s->stream);
    pack_rows(be, r, none, h_columns, h, F);
    each_weights(be, r, dy_columns, h_columns, D, F, ddown);
}

static void up_backward(struct backend *be, const struct cuda_rows *r, real_t *drows,
                        struct gradient dup, const real_t *dz, const real_t *rows,
                        const real_t *w) {
    int D = r->shape.D, F = r->shape.F;
    struct mxfp8_matrix dz_rows = room(be, CUDA_MXFP8_ROWS, r->most, 2 * F),
                        dz_columns = room(be, CUDA_MXFP8_GRADIENTS, r->most, 2 * F),
                        x_columns = room(be, CUDA_MXFP8_COLUMNS, r->most, D);
    pack_rows(be, r, dz_rows, dz_columns, dz, 2 * F);
    each_rows(be, r, dz_rows, transposed(w, r->n_local, 2 * F, D), D, 2 * F, drows);
    pack_rows(be, r, none, x_columns, rows, D);
    each_weights(be, r, dz_columns, x_columns, 2 * F, D, dup);
}

const real_t *cuda_mxfp8_h(struct backend *be, const struct cuda_rows *r, const real_t *z,
                           const real_t *h) {
    struct cuda_state *s = cuda_state(be);
    if (!s->mxfp8_up) return h;
    real_t *again = s->mxfp8[CUDA_MXFP8_ROWS]; /* has as many bytes: dz is twice as wide */
    swiglu_forward(s->real, again, z, r->row_p, n_rows(r), NULL, r->shape.F, s->stream);
    return again;
}

/* ---- projections: of no tokens, where a rank takes part without any ---- */

static void pack_tokens(struct backend *be, struct mxfp8_matrix by_row, struct mxfp8_matrix by_col,
                        const real_t *x, int N, int cols) {
    mxfp8_pack(by_row, by_col, x, (struct mxfp8_set){.n = 1, .rows = N}, cols,
               cuda_state(be)->stream);
}

/* y[N, M] = x[N, K] w[M, K]^T */
static void project(struct backend *be, real_t *y, const real_t *x, struct mxfp8_matrix w, int N,
                    int M, int K) {
    struct mxfp8_matrix x8 = room(be, CUDA_MXFP8_ROWS, (size_t)N, K);
    pack_tokens(be, x8, none, x, N, K);
    cuda_gemm_mxfp8(be, 0, N, M, K, x8, w, 0, y, /*c_fp32=*/0);
}

static void matmul(struct backend *be, real_t *y, const real_t *x, const real_t *w, int N, int M,
                   int D) {
    project(be, y, x, as_is(w, 1, M, D), N, M, D);
}

static void matmul_dx(struct backend *be, real_t *dx, const real_t *dy, const real_t *w, int N,
                      int M, int D) {
    project(be, dx, dy, transposed(w, 1, M, D), N, D, M);
}

static void matmul_dw(struct backend *be, float *dw, const real_t *dy, const real_t *x, int N,
                      int M, int D, int accumulate) {
    struct mxfp8_matrix dy8 = room(be, CUDA_MXFP8_GRADIENTS, (size_t)N, M),
                        x8 = room(be, CUDA_MXFP8_COLUMNS, (size_t)N, D);
    pack_tokens(be, none, dy8, dy, N, M);
    pack_tokens(be, none, x8, x, N, D);
    cuda_gemm_mxfp8(be, 0, M, D, (int)mxfp8_whole((size_t)N), dy8, x8, accumulate ? 1 : 0, dw,
                    /*c_fp32=*/1);
}

const struct cuda_eight cuda_mxfp8 = {.weights = weights,
                                      .up = up,
                                      .down = down,
                                      .down_backward = down_backward,
                                      .up_backward = up_backward,
                                      .matmul = matmul,
                                      .matmul_dx = matmul_dx,
                                      .matmul_dw = matmul_dw};

/* ---- opening ---- */

/* c[M, N], sums of K */
struct size {
    int M, N, K, c_fp32;
};

/* The first product of those that there will be for which cuBLASLt has no algorithm; M 0: it has
 * all. */
static struct size lacking(struct backend *be) {
    enum { ROWS = MXFP8_TILE_ROWS, FORWARD = 4 };
    struct cuda_state *s = cuda_state(be);
    const struct work *w = &s->work;
    int N = w->N, D = w->D, F = w->F, H = w->attention.H * w->attention.K,
        qkv = H + 2 * w->attention.G * w->attention.K, depth = (int)mxfp8_whole((size_t)N);
    const struct size all[] = {{N, qkv, D, 0},   {N, D, H, 0},        {ROWS, 2 * F, D, 0},
                               {ROWS, D, F, 0},  {N, D, qkv, 0},      {N, H, D, 0},
                               {ROWS, F, D, 0},  {ROWS, D, 2 * F, 0}, {qkv, D, depth, 1},
                               {D, H, depth, 1}, {2 * F, D, ROWS, 1}, {D, F, ROWS, 1}};
    int n = w->backward ? (int)(sizeof all / sizeof *all) : FORWARD;
    struct mxfp8_matrix any = room(be, CUDA_MXFP8_ROWS, 1, MXFP8_BLOCK);
    for (int i = 0; i < n; i++)
        if (!cuda_gemm_mxfp8_serves(be, all[i].M, all[i].N, all[i].K, any, any, any.codes,
                                    all[i].c_fp32))
            return all[i];
    return (struct size){0};
}

static void refuse_lacking(struct backend *be) {
    struct size size = lacking(be);
    char what[120] = "of another rank lacks a product";
    if (size.M > 0)
        snprintf(what, sizeof what, "has no algorithm for a product of %d x %d x %d", size.M,
                 size.N, size.K);
    if (!cuda_gemm_has_mxfp8())
        snprintf(what, sizeof what, "that this program was built with is older than CUDA 12.8's");
    if (agree_any(be->grid, size.M > 0) && be->grid->rank == 0)
        die_user(EXIT_CONFIG,
                 "precision.recipe: cuBLASLt %s in MXFP8 here: precision.emulate: true gives the "
                 "same numbers by products in BF16",
                 what);
    user_agree();
}

/* Where the deck asks for it. */
static void open_up(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    char reason[200];
    const char *why = reason;
    if (cuda_mxfp8_up_serves(&s->work, reason, sizeof reason)) s->mxfp8_up = mxfp8_up_open(&why);
    if (agree_any(be->grid, !s->mxfp8_up) && be->grid->rank == 0)
        die_user(EXIT_CONFIG, "engine.experts: grouped: %s",
                 s->mxfp8_up ? "the GPU of another rank does not serve" : why);
    user_agree();
    log_info("experts", "gate and up of mxfp8 by one kernel: compiled, never run before");
}

void cuda_mxfp8_reserve(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_mxfp8_rooms rooms = cuda_mxfp8_rooms_of(&s->work, be->grid->ep_size);
    if (s->eight != &cuda_mxfp8) return;
    for (int i = 0; i < N_CUDA_MXFP8_ROOMS; i++)
        if (rooms.bytes[i]) s->mxfp8[i] = be->alloc(be, rooms.bytes[i]);
    refuse_lacking(be);
    if (s->options.experts == EXPERTS_GROUPED) open_up(be);
}

void cuda_mxfp8_close(struct backend *be) {
    mxfp8_up_close(cuda_state(be)->mxfp8_up);
    for (int i = 0; i < N_CUDA_MXFP8_ROOMS; i++) be->release(be, cuda_state(be)->mxfp8[i]);
}
