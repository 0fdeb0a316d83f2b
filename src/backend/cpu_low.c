/* Products in eight bits, emulated: both operands are rounded as backend.h has it of `enum low`,
 * and multiplied in FP32. */
#include "config.h"
#include "backend/cpu.h"
#include "backend/formats.h"
#include "low_row.h"

/* Of the first or the second operand; sums_down: the sum runs down its rows. */
static struct format format_of(enum low low, int second, int sums_down) {
    int along = low == LOW_MXFP8 ? 32 : 128, across = low == LOW_FP8_BLOCK && second ? 128 : 1;
    return (struct format){.element = E4M3,
                           .scale = low == LOW_MXFP8 ? FORMAT_E8M0 : FORMAT_FP32,
                           .rows = sums_down ? along : across,
                           .cols = sums_down ? across : along};
}

/* x[rows, cols], row stride ld, rounded: dense. */
static const float *rounded(struct backend *be, enum rounded_buffer which, int sums_down,
                            const float *x, int rows, int cols, int ld) {
    struct format f = format_of(be->low, which == ROUNDED_B, sums_down);
    float *out = cpu_rounded_buffer(be, which, (size_t)rows * (size_t)cols);
#pragma omp parallel for if (cpu_worth((size_t)rows, (size_t)cols))
    for (int first = 0; first < rows; first += f.rows) {
        int n = rows - first < f.rows ? rows - first : f.rows;
        format_round(f, x + (size_t)first * (size_t)ld, n, cols, (size_t)ld,
                     out + (size_t)first * (size_t)cols, (size_t)cols, NULL, NULL);
    }
    return out;
}

void cpu_product(struct backend *be, enum transpose ta, enum transpose tb, int M, int N, int K,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc) {
    if (be->low != LOW_NONE && M > 0 && N > 0 && K > 0) {
        int a_down = ta == TRANSPOSE, b_down = tb == NO_TRANSPOSE;
        a = rounded(be, ROUNDED_A, a_down, a, a_down ? K : M, a_down ? M : K, lda);
        b = rounded(be, ROUNDED_B, b_down, b, b_down ? K : N, b_down ? N : K, ldb);
        lda = a_down ? M : K, ldb = b_down ? N : K;
    }
    cpu_gemm(ta, tb, M, N, K, 1, a, lda, b, ldb, beta, c, ldc);
}

/* Gate and up of a row are two lines. */
void cpu_round_z(struct backend *be, float *z, int rows, int F) {
    struct format f = format_of(be->low, /*second=*/0, /*sums_down=*/0);
    if (be->low == LOW_NONE || !be->low_z) return;
#pragma omp parallel for if (cpu_worth((size_t)rows, (size_t)F))
    for (int i = 0; i < 2 * rows; i++) {
        float *half = z + (size_t)i * (size_t)F;
        format_round(f, half, 1, F, (size_t)F, half, (size_t)F, NULL, NULL);
    }
}

/* ---- rows that travel ---- */

static const struct format of_row = {
    .element = E4M3, .scale = FORMAT_FP32, .rows = 1, .cols = LOW_ROW_BLOCK};

void cpu_low_row_write(void *to, const float *x, int D) {
    format_round(of_row, x, 1, D, (size_t)D, NULL, 0, (uint8_t *)to + low_row_scales(D), to);
}

void cpu_low_row_read(float *x, const void *from, int D) {
    const float *scales = from;
    const uint8_t *codes = (const uint8_t *)from + low_row_scales(D);
    for (int j = 0; j < D; j++) x[j] = format_decode(E4M3, codes[j]) * scales[j / LOW_ROW_BLOCK];
}

void cpu_low_row_round(float *row, const float *x, int D) {
    format_round(of_row, x, 1, D, (size_t)D, row, (size_t)D, NULL, NULL);
}

/* ---- the table ---- */

static size_t low_z_bytes(struct backend *be, size_t R, int F) {
    return R * 2 * (size_t)F * be->real_bytes;
}

/* x[rows, cols] of an expert layer: its own stretch of rows, experts' one behind the other. Blocks
 * are parts of a row, so where an expert begins does not matter. */
static const float *moe_operand(struct low_operand o, int *rows, int *cols) {
    struct moe_rows r = cpu_moe_rows(o.m);
    int D = r.shape.D, F = r.shape.F;
    *rows = r.offsets[r.n_local];
    *cols = o.place == LOW_H ? F : o.place == LOW_DZ ? 2 * F : D;
    size_t base = o.place == LOW_ROWS ? r.base : o.place == LOW_DZ ? r.z_base : 0;
    return (const float *)(o.place == LOW_H ? o.h : o.x) + base * (size_t)*cols;
}

static void low_statistics(struct backend *be, double *sums, struct low_operand o) {
    int weights = o.place == LOW_WEIGHTS, n = weights ? o.n : 1, rows = o.rows, cols = o.cols;
    struct format f = format_of(be->low, weights, /*sums_down=*/0);
    const float *x = o.m ? moe_operand(o, &rows, &cols) : o.x;
    for (int e = 0; e < n; e++)
        format_losses(f, x + (size_t)e * (size_t)rows * (size_t)cols, rows, cols, (size_t)cols,
                      sums);
}

static size_t low_bytes(struct backend *be, int n, int N, int K) {
    (void)be;
    (void)n;
    (void)N;
    (void)K;
    return 0;
}

static size_t low_kept_bytes(struct backend *be, int N, int D) {
    (void)be;
    (void)N;
    (void)D;
    return 0;
}

static void low_weights(struct backend *be, void *copies, const real_t *w, int n, int N, int K) {
    (void)be;
    (void)copies;
    (void)w;
    (void)n;
    (void)N;
    (void)K;
}

void cpu_fill_low(struct backend *be) {
    be->low_bytes = low_bytes;
    be->low_z_bytes = low_z_bytes;
    be->low_weights = low_weights;
    be->low_kept_bytes = low_kept_bytes;
    be->low_statistics = low_statistics;
}
