/* Products in eight bits (LOW_FP8_BLOCK) by the grouped kernels: of the experts, and of projections
 * as of one expert that has all tokens. Operands are rounded on the way into each product, weights
 * once, in low_weights. An operand that is summed over its rows in one product and over its columns
 * in another lies in memory both ways, each rounded for itself. */
#include "config.h"
#include "backend/cuda.h"
#include "base/memory.h"
#include "grouped_fp8.h"
#include "quantise.h"
#include <assert.h>

/* What low_weights made in these copies, which products are given as their weights. */
struct copies {
    const void *place;
    struct fp8_matrix as_is, transposed;
};

struct cuda_low {
    struct copies *list;
    int n, most;
    void *rooms[N_CUDA_LOW_ROOMS]; /* for operands, from one call to the next at most */
};

static const struct fp8_matrix none;

/* Its codes, and behind them its scales. */
static struct fp8_matrix matrix_at(void *p, size_t elements) {
    return (struct fp8_matrix){p, (float *)((char *)p + cuda_scales_at(elements))};
}

static struct fp8_matrix room(struct backend *be, enum cuda_low_room which, size_t rows, int cols) {
    return matrix_at(cuda_state(be)->low->rooms[which], rows * (size_t)cols);
}

/* Of the rows of a stash, or of a layer. */
struct fp8_z cuda_low_kept_z(const struct backend *be, const real_t *z, const struct cuda_rows *r) {
    void *p = (void *)(uintptr_t)z;
    size_t R = r->z_base ? r->z_most : r->most;
    if (!be->low_z) return (struct fp8_z){.bf16 = p};
    return (struct fp8_z){.low = matrix_at(p, R * 2 * (size_t)r->shape.F)};
}

/* ---- weights ---- */

static struct copies *copies_at(struct cuda_low *low, const void *place) {
    for (int i = 0; i < low->n; i++)
        if (low->list[i].place == place) return &low->list[i];
    return NULL;
}

static struct copies of_weights(struct backend *be, const real_t *w) {
    struct copies *c = copies_at(cuda_state(be)->low, w);
    if (!c) die("there are no weights in eight bits at %p", (const void *)w);
    return *c;
}

static void weights(struct backend *be, void *copies, const real_t *w, int n, int N, int K) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_low *low = s->low;
    struct copies *c = copies_at(low, copies);
    size_t elements = (size_t)n * (size_t)N * (size_t)K;
    if (!c) {
        if (low->n == low->most) {
            low->most = 2 * low->most + 16;
            low->list = memory_resize(low->list, (size_t)low->most * sizeof *low->list);
        }
        c = &low->list[low->n++];
    }
    c->place = copies;
    c->as_is = matrix_at(copies, elements);
    c->transposed = matrix_at((char *)copies + cuda_low_copies(n, N, K) / 2, elements);
    quantise_weights(c->as_is, c->transposed, w, n, N, K, s->stream);
}

/* ---- experts ---- */

static void up(struct backend *be, const struct cuda_rows *r, real_t *z, real_t *h,
               const real_t *rows, const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    struct grouped_rows g = cuda_stashed_rows(be, r);
    int D = r->shape.D, F = r->shape.F;
    struct fp8_matrix x = room(be, CUDA_LOW_ROWS, r->most, D);
    quantise_rows(x, none, 0, rows, g, D, s->stream);
    grouped_fp8_up(s->grouped, cuda_low_kept_z(be, z, r), matrix_at(h, r->most * (size_t)F), x,
                   of_weights(be, w).as_is, r->row_p, g, D, F, s->stream);
}

static void down(struct backend *be, const struct cuda_rows *r, real_t *y, const real_t *h,
                 const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    grouped_fp8_forward(
        s->grouped, y, matrix_at((void *)(uintptr_t)h, r->most * (size_t)r->shape.F),
        of_weights(be, w).as_is, cuda_grouped_rows(be, r), r->shape.D, r->shape.F, s->stream);
}

/* The gradient of z stays in the rooms, in eight bits, until up_backward. */
static void down_backward(struct backend *be, const struct cuda_rows *r, real_t *dz, float *dp_rows,
                          struct gradient ddown, const real_t *dy, const real_t *z, real_t *h,
                          const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    (void)dz;
    struct grouped_rows g = cuda_stashed_rows(be, r);
    int D = r->shape.D, F = r->shape.F;
    struct fp8_matrix dy_rows = room(be, CUDA_LOW_ROWS, r->most, D),
                      dy_columns = room(be, CUDA_LOW_RESULTS, r->most, D),
                      h_columns = room(be, CUDA_LOW_COLUMNS, r->most, F);
    quantise_rows(dy_rows, dy_columns, 0, dy, cuda_grouped_rows(be, r), D, s->stream);
    grouped_fp8_forward(s->grouped, h, dy_rows, of_weights(be, w).transposed, g, F, D,
                        s->stream); /* h holds dh */
    quantise_swiglu(room(be, CUDA_LOW_ROWS, r->most, 2 * F),
                    room(be, CUDA_LOW_GRADIENTS, r->most, 2 * F), h_columns, dp_rows, s->scratch, h,
                    cuda_low_kept_z(be, z, r), r->row_p, g, F, s->stream);
    grouped_fp8_weights(s->grouped, ddown, dy_columns, h_columns, g, D, F, s->stream);
}

static void up_backward(struct backend *be, const struct cuda_rows *r, real_t *drows,
                        struct gradient dup, const real_t *dz, const real_t *rows,
                        const real_t *w) {
    struct cuda_state *s = cuda_state(be);
    (void)dz;
    struct grouped_rows g = cuda_stashed_rows(be, r);
    int D = r->shape.D, F = r->shape.F;
    struct fp8_matrix x = room(be, CUDA_LOW_COLUMNS, r->most, D);
    grouped_fp8_forward(s->grouped, drows, room(be, CUDA_LOW_ROWS, r->most, 2 * F),
                        of_weights(be, w).transposed, g, D, 2 * F, s->stream);
    quantise_rows(none, x, 1, rows, g, D, s->stream);
    grouped_fp8_weights(s->grouped, dup, room(be, CUDA_LOW_GRADIENTS, r->most, 2 * F), x, g, 2 * F,
                        D, s->stream);
}

/* ---- projections: of no tokens, where a rank takes part without any ---- */

static struct grouped_rows tokens(const struct cuda_state *s, int N) {
    int unit = GROUPED_FP8_ROWS;
    return (struct grouped_rows){
        .E = 1, .rows = (N + unit - 1) / unit * unit, .multiprocessors = s->product_sms};
}

/* y[N, M] = x[N, D] w^T */
static void project(struct backend *be, real_t *y, const real_t *x, struct fp8_matrix w, int N,
                    int M, int D) {
    struct cuda_state *s = cuda_state(be);
    struct grouped_rows g = tokens(s, N);
    struct fp8_matrix x8 = room(be, CUDA_LOW_ROWS, (size_t)g.rows, D);
    if (N == 0) return;
    quantise_dense(x8, none, 0, x, N, D, s->stream);
    grouped_fp8_dense(s->grouped, y, x8, w, g, N, M, D, s->stream);
}

static void matmul(struct backend *be, real_t *y, const real_t *x, const real_t *w, int N, int M,
                   int D) {
    project(be, y, x, of_weights(be, w).as_is, N, M, D);
}

static void matmul_dx(struct backend *be, real_t *dx, const real_t *dy, const real_t *w, int N,
                      int M, int D) {
    project(be, dx, dy, of_weights(be, w).transposed, N, D, M);
}

/* x by columns, as it is kept and as matmul_dw has it for itself. */
static struct fp8_matrix kept_at(const struct cuda_state *s, const void *kept, int N, int D) {
    return matrix_at((void *)(uintptr_t)kept, (size_t)tokens(s, N).rows * (size_t)D);
}

static void low_keep(struct backend *be, void *kept, const real_t *x, int N, int D) {
    struct cuda_state *s = cuda_state(be);
    if (N > 0) quantise_dense(none, kept_at(s, kept, N, D), 1, x, N, D, s->stream);
}

static void matmul_dw_kept(struct backend *be, float *dw, const real_t *dy, const void *kept, int N,
                           int M, int D, int accumulate) {
    struct cuda_state *s = cuda_state(be);
    struct grouped_rows g = tokens(s, N);
    struct fp8_matrix dy8 = room(be, CUDA_LOW_GRADIENTS, (size_t)g.rows, M);
    if (N == 0) {
        if (!accumulate) be->zero(be, dw, (size_t)M * (size_t)D * sizeof *dw);
        return;
    }
    quantise_dense(none, dy8, 0, dy, N, M, s->stream);
    grouped_fp8_weights(s->grouped, gradient_whole(dw, accumulate), dy8, kept_at(s, kept, N, D), g,
                        M, D, s->stream);
}

static void matmul_dw(struct backend *be, float *dw, const real_t *dy, const real_t *x, int N,
                      int M, int D, int accumulate) {
    void *x8 = cuda_state(be)->low->rooms[CUDA_LOW_COLUMNS];
    low_keep(be, x8, x, N, D);
    matmul_dw_kept(be, dw, dy, x8, N, M, D, accumulate);
}

const struct cuda_eight cuda_fp8 = {.weights = weights,
                                    .up = up,
                                    .down = down,
                                    .down_backward = down_backward,
                                    .up_backward = up_backward,
                                    .matmul = matmul,
                                    .matmul_dx = matmul_dx,
                                    .matmul_dw = matmul_dw};

/* ---- opening ---- */

void cuda_low_reserve(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_low_rooms rooms = cuda_low_rooms_of(&s->work, be->grid->ep_size);
    if (s->eight != &cuda_fp8) return;
    assert(!s->low);
    s->low = memory_alloc(sizeof *s->low);
    for (int i = 0; i < N_CUDA_LOW_ROOMS; i++)
        if (rooms.bytes[i]) s->low->rooms[i] = be->alloc(be, rooms.bytes[i]);
}

void cuda_low_close(struct backend *be) {
    struct cuda_low *low = cuda_state(be)->low;
    if (!low) return;
    for (int i = 0; i < N_CUDA_LOW_ROOMS; i++) be->release(be, low->rooms[i]);
    memory_free(low->list);
    memory_free(low);
}

/* ---- the table ---- */

static size_t low_bytes(struct backend *be, int n, int N, int K) {
    return cuda_low_bytes(&cuda_state(be)->work, n, N, K);
}

static size_t low_z_bytes(struct backend *be, size_t R, int F) {
    return cuda_low_z_bytes(be, cuda_state(be)->work.low, R, F);
}

static size_t low_kept_bytes(struct backend *be, int N, int D) {
    return cuda_low_kept_bytes(cuda_state(be)->work.low, N, D);
}

static void low_weights(struct backend *be, void *copies, const real_t *w, int n, int N, int K) {
    cuda_state(be)->eight->weights(be, copies, w, n, N, K);
}

void cuda_fill_low(struct backend *be) {
    be->low_bytes = low_bytes;
    be->low_z_bytes = low_z_bytes;
    be->low_weights = low_weights;
    be->low_kept_bytes = low_kept_bytes;
    be->low_keep = low_keep;
    be->matmul_dw_kept = matmul_dw_kept;
}
