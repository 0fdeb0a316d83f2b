/* Products in eight bits on GPUs without units for them (MXFP8 so far): operands are rounded to
 * E4M3 in blocks of 32 with a power of two (backend.h), which BF16 holds exactly, and multiplied in
 * BF16. What is summed over rows in one product and over columns in another is rounded for each.
 * Copies of weights are rounded along their rows, and from the middle on down their columns. */
#include "config.h"
#include "backend/cuda.h"
#include "mxfp8.h"

enum { FIRST, SECOND }; /* operands: rooms of cuda_state's `emulated` */

/* ---- weights ---- */

static void weights(struct backend *be, void *copies, const real_t *w, int n, int N, int K) {
    struct cuda_state *s = cuda_state(be);
    struct mxfp8_rows rows = {.rows = n * N};
    size_t half = cuda_emulate_copies(n, N, K) / 2;
    mxfp8_round(copies, w, MXFP8_ALONG_ROWS, rows, K, s->stream);
    mxfp8_round((char *)copies + half, w, MXFP8_DOWN_COLUMNS, rows, K, s->stream);
}

static const real_t *down_columns(const real_t *copies, int n, int N, int K) {
    return (const char *)copies + cuda_emulate_copies(n, N, K) / 2;
}

/* ---- experts ---- */

/* x[rows, cols] of the experts, from row base[0] on, rounded: at the beginning of a room. */
static real_t *rounded(struct backend *be, const struct cuda_rows *r, int operand,
                       enum mxfp8_blocks blocks, const real_t *x, const int32_t *base, int cols) {
    struct cuda_state *s = cuda_state(be);
    struct mxfp8_rows rows = {.rows = (int)r->most, .last = r->offsets + r->n_local, .from = base};
    mxfp8_round(s->emulated[operand], x, blocks, rows, cols, s->stream);
    return s->emulated[operand];
}

/* The same rows of operands that lie by themselves. */
static struct cuda_rows without(const struct cuda_rows *r, int x, int z) {
    struct cuda_rows own = *r;
    if (x) own.x_base = NULL;
    if (z) own.z_base = NULL;
    return own;
}

static void up(struct backend *be, const struct cuda_rows *r, real_t *z, real_t *h,
               const real_t *rows, const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_rows own = without(r, 1, 0);
    int D = r->shape.D, F = r->shape.F;
    s->products->up(be, &own, z, h, rounded(be, r, FIRST, MXFP8_ALONG_ROWS, rows, r->x_base, D), w);
    if (be->low_z) /* gate and up are multiples of a block */
        mxfp8_round(z, z, MXFP8_ALONG_ROWS,
                    (struct mxfp8_rows){.rows = (int)r->most,
                                        .last = r->offsets + r->n_local,
                                        .from = r->z_base,
                                        .to = r->z_base},
                    2 * F, s->stream);
}

static void down(struct backend *be, const struct cuda_rows *r, real_t *y, const real_t *h,
                 const real_t *w) {
    cuda_state(be)->products->down(be, r, y,
                                   rounded(be, r, FIRST, MXFP8_ALONG_ROWS, h, NULL, r->shape.F), w);
}

static void down_backward(struct backend *be, const struct cuda_rows *r, real_t *dz, float *dp_rows,
                          struct gradient ddown, const real_t *dy, const real_t *z, real_t *h,
                          const real_t *w) {
    const struct cuda_products *p = cuda_state(be)->products;
    int D = r->shape.D, F = r->shape.F;
    p->down_gradient(be, r, dz, h, dp_rows, rounded(be, r, FIRST, MXFP8_ALONG_ROWS, dy, NULL, D), z,
                     down_columns(w, r->n_local, D, F));
    p->down_weights(be, r, ddown, rounded(be, r, FIRST, MXFP8_DOWN_COLUMNS, dy, NULL, D),
                    rounded(be, r, SECOND, MXFP8_DOWN_COLUMNS, h, NULL, F));
}

static void up_backward(struct backend *be, const struct cuda_rows *r, real_t *drows,
                        struct gradient dup, const real_t *dz, const real_t *rows,
                        const real_t *w) {
    const struct cuda_products *p = cuda_state(be)->products;
    struct cuda_rows own = without(r, 1, 1);
    int D = r->shape.D, F = r->shape.F;
    p->up_gradient(be, &own, drows, rounded(be, r, FIRST, MXFP8_ALONG_ROWS, dz, r->z_base, 2 * F),
                   down_columns(w, r->n_local, 2 * F, D));
    p->up_weights(be, &own, dup, rounded(be, r, FIRST, MXFP8_DOWN_COLUMNS, dz, r->z_base, 2 * F),
                  rounded(be, r, SECOND, MXFP8_DOWN_COLUMNS, rows, r->x_base, D));
}

/* ---- projections ---- */

static real_t *rounded_tokens(struct backend *be, int operand, enum mxfp8_blocks blocks,
                              const real_t *x, int N, int cols) {
    struct cuda_state *s = cuda_state(be);
    mxfp8_round(s->emulated[operand], x, blocks, (struct mxfp8_rows){.rows = N}, cols, s->stream);
    return s->emulated[operand];
}

static void matmul(struct backend *be, real_t *y, const real_t *x, const real_t *w, int N, int M,
                   int D) {
    cuda_gemm(be, 0, CUDA_NO_TRANSPOSE, CUDA_TRANSPOSE, N, M, D,
              rounded_tokens(be, FIRST, MXFP8_ALONG_ROWS, x, N, D), w, 0, y, /*c_fp32=*/0);
}

static void matmul_dx(struct backend *be, real_t *dx, const real_t *dy, const real_t *w, int N,
                      int M, int D) {
    cuda_gemm(be, 0, CUDA_NO_TRANSPOSE, CUDA_NO_TRANSPOSE, N, D, M,
              rounded_tokens(be, FIRST, MXFP8_ALONG_ROWS, dy, N, M), down_columns(w, 1, M, D), 0,
              dx, /*c_fp32=*/0);
}

static void matmul_dw(struct backend *be, float *dw, const real_t *dy, const real_t *x, int N,
                      int M, int D, int accumulate) {
    cuda_gemm(be, 0, CUDA_TRANSPOSE, CUDA_NO_TRANSPOSE, M, D, N,
              rounded_tokens(be, FIRST, MXFP8_DOWN_COLUMNS, dy, N, M),
              rounded_tokens(be, SECOND, MXFP8_DOWN_COLUMNS, x, N, D), accumulate ? 1 : 0, dw,
              /*c_fp32=*/1);
}

const struct cuda_eight cuda_emulated = {.weights = weights,
                                         .up = up,
                                         .down = down,
                                         .down_backward = down_backward,
                                         .up_backward = up_backward,
                                         .matmul = matmul,
                                         .matmul_dx = matmul_dx,
                                         .matmul_dw = matmul_dw};

/* ---- opening ---- */

void cuda_emulate_reserve(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_emulate_rooms rooms =
        cuda_emulate_rooms_of(&s->work, s->grouped != NULL, be->grid->ep_size);
    for (int i = 0; i < 2; i++)
        if (rooms.bytes[i]) s->emulated[i] = be->alloc(be, rooms.bytes[i]);
}

void cuda_emulate_close(struct backend *be) {
    for (int i = 0; i < 2; i++) be->release(be, cuda_state(be)->emulated[i]);
}
