/* The products in eight bits by themselves, on a GPU of compute capability 9.0: codes and scales
 * against src/backend/formats.h, products at random places against FP64 sums of what was decoded,
 * the same bits whenever and on however many multiprocessors they run, nothing written where no
 * rows are; behind others' rows in larger arrays; a NaN stays where it belongs; and projections,
 * whose rows are no multiple of 128. */
#include "config.h"
#include "backend/formats.h"
#include "fp8_bed.h"

static const struct round rounds[] = {
    {8, 1024, 768, 9000, "balanced", 128}, {3, 2048, 384, 7000, "half", 128},
    {64, 512, 256, 8000, "skew:1", 0},     {256, 128, 128, 3000, "skew:1", 128},
    {1, 640, 896, 2500, "one", 0},         {5, 384, 640, 4000, "empty", 256},
    {8, 128, 128, 100, "one", 128},        {2, 4096, 256, 300, "balanced", 0}};
/* Projections: one expert, all rows; here 2F >= D. */
static const struct round dense[] = {
    {1, 640, 384, 333, "one", 0}, {1, 256, 128, 1, "one", 0}, {1, 1152, 640, 2048, "one", 0}};

enum { SAMPLES = 3000, ROWS_SAMPLED = 40, BLOCKS_SAMPLED = 300, SQUARES_SAMPLED = 6 };

static void result(const struct test *t, int ok, const char *text) {
    tap_ok(ok, "E %d, D %d, F %d, %d rows, %s: %s", t->r.E, t->r.D, t->r.F, t->r.rows, t->r.routing,
           text);
}

static void result_error(const struct test *t, double worst, double most, const char *text) {
    tap_ok(worst < most, "E %d, D %d, F %d, %d rows, %s: %s against FP64: %.1e", t->r.E, t->r.D,
           t->r.F, t->r.rows, t->r.routing, text, worst);
}

static size_t draw(struct test *t, size_t below) {
    return (size_t)(random_bits(9, RANDOM_TEST, t->seed++) % below);
}

/* ---- codes and scales ---- */

static double value(const struct test *t, int k, size_t i) {
    return to_float(((const half_t *)t->a[k].host)[i]);
}

/* What element (i, j) stands for. */
static float source(const struct test *t, const struct eight *q, size_t i, size_t j) {
    const half_t *x = t->a[q->source].host;
    size_t each = q->lines / q->n;
    return to_float(q->turned ? x[(i / each * q->width + j) * each + i % each]
                              : x[i * q->width + j]);
}

static int same_code(uint8_t a, uint8_t b) {
    return a == b || ((a & 0x7f) == 0x7f && (b & 0x7f) == 0x7f);
}

static int same_scale(float a, float b) {
    return a == b || (isnan(a) && isnan(b));
}

/* Codes and scales that are not those of formats.h. */
static size_t n_wrong(const struct test *t, int m) {
    const struct eight *q = &t->eight[m];
    size_t wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
    for (size_t first = 0; first < q->lines_used; first += q->high)
        for (size_t j = 0; j < q->width_used; j += SIDE) {
            float most = 0;
            for (size_t k = 0; k < q->high * SIDE; k++) {
                float x = fabsf(source(t, q, first + k / SIDE, j + k % SIDE));
                if (!isnan(most) && !(x <= most)) most = x;
            }
            float scale = format_scale(FORMAT_FP32, E4M3, most), inverse = 1 / scale;
            wrong += !same_scale(scales(t, m)[scale_at(q, first, j)], scale);
            for (size_t k = 0; k < q->high * SIDE; k++) {
                size_t i = first + k / SIDE, at = j + k % SIDE;
                wrong += !same_code(codes(t, m)[i * q->width + at],
                                    format_encode(E4M3, source(t, q, i, at) * inverse));
            }
        }
    return wrong;
}

static void check_codes(const struct test *t) {
    size_t wrong = 0;
    for (int m = 0; m < N_EIGHT; m++)
        if (t->eight[m].source != NONE && (m != Z8 || t->low_z)) wrong += n_wrong(t, m);
    result(t, wrong == 0, "codes and scales are those of formats.h");
}

static double at(const struct test *t, int m, size_t i, size_t j) {
    const struct eight *q = &t->eight[m];
    return (double)format_decode(E4M3, codes(t, m)[i * q->width + j]) *
           scales(t, m)[scale_at(q, i, j)];
}

/* z as the backward pass has it. */
static double z_value(const struct test *t, size_t row, size_t col) {
    return t->low_z ? at(t, Z8, row, col) : value(t, Z, row * 2 * (size_t)t->r.F + col);
}

/* What element (i, j) of h or dz stands for, from the device's z and dh; h of the forward pass is
 * made of z in BF16. */
static double made(const struct test *t, int m, size_t i, size_t j) {
    size_t F = (size_t)t->r.F, row = t->eight[m].turned ? j : i, col = t->eight[m].turned ? i : j,
           f = col % F;
    double p = ((const float *)t->a[P].host)[row],
           gate = m == H8 ? value(t, Z, row * 2 * F + f) : z_value(t, row, f),
           up = m == H8 ? value(t, Z, row * 2 * F + F + f) : z_value(t, row, F + f),
           s = 1 / (1 + exp(-gate));
    if (m == H8) return p * gate * s * up;
    if (m == HT8) return to_float(to_half((float)(p * gate * s * up)));
    double dh = p * value(t, DH, row * F + f);
    return to_float(to_half((float)(col < F ? dh * up * s * (1 + gate * (1 - s)) : dh * gate * s)));
}

/* As whole numbers that are next to each other where codes are. */
static int ordered(uint8_t code) {
    return code & 0x80 ? -(code & 0x7f) : code;
}

/* h and dz are computed in FP32: here and there one is rounded the other way. */
struct tally {
    size_t blocks, other_scales, codes, other_codes, wrong;
};

static void tally_block(const struct test *t, int m, size_t first, size_t j, struct tally *c) {
    const struct eight *q = &t->eight[m];
    float scale = scales(t, m)[scale_at(q, first, j)], inverse = 1 / scale;
    double most = 0;
    for (size_t k = 0; k < q->high * SIDE; k++) {
        size_t i = first + k / SIDE, at = j + k % SIDE;
        double x = made(t, m, i, at);
        uint8_t code = codes(t, m)[i * q->width + at];
        int apart = abs(ordered(code) - ordered(format_encode(E4M3, (float)x * inverse)));
        c->codes++, c->other_codes += apart != 0, c->wrong += apart > 1;
        most = fmax(most, fabs(x));
    }
    double ratio = scale / format_scale(FORMAT_FP32, E4M3, (float)most);
    c->blocks++, c->other_scales += !(fabs(ratio - 1) < 1e-5),
        c->wrong += !(fabs(ratio - 1) < 0.01);
}

static void check_made(struct test *t) {
    static const int list[] = {H8, HT8, DZ8, DZT8};
    for (int k = 0; k < 4; k++) {
        const struct eight *q = &t->eight[list[k]];
        struct tally c = {0};
        for (int n = q->high > 1 ? SQUARES_SAMPLED : BLOCKS_SAMPLED; n > 0; n--) {
            size_t first = draw(t, q->lines_used / q->high) * q->high,
                   j = draw(t, q->width_used / SIDE) * SIDE;
            tally_block(t, list[k], first, j, &c);
        }
        tap_ok(c.wrong == 0 && c.other_scales * 50 <= c.blocks && c.other_codes * 500 <= c.codes,
               "E %d, D %d, F %d, %s: %s: of %zu scales and %zu codes %zu and %zu are another's, "
               "%zu far off",
               t->r.E, t->r.D, t->r.F, t->r.routing,
               (const char *const[]){"h", "h by column", "dz", "dz by column"}[k], c.blocks,
               c.codes, c.other_scales, c.other_codes, c.wrong);
    }
}

/* ---- products ---- */

/* sum over j in [first, first + n) of a[i, j] b[k, j] */
static double dot(const struct test *t, int a, size_t i, int b, size_t k, size_t first, size_t n) {
    double sum = 0;
    for (size_t j = first; j < first + n; j++) sum += at(t, a, i, j) * at(t, b, k, j);
    return sum;
}

static int expert_of(const struct test *t, size_t row) {
    int e = 0;
    while (row >= (size_t)t->offsets[e + 1]) e++;
    return e;
}

static void check_rows(struct test *t) {
    size_t D = (size_t)t->r.D, F = (size_t)t->r.F;
    struct error z = {0, 0}, y = z, dh = z, dx = z;
    for (int s = 0; s < SAMPLES; s++) {
        size_t row = draw(t, t->R), g = draw(t, 2 * F), f = draw(t, F), d = draw(t, D),
               e = (size_t)expert_of(t, row);
        note(&z, value(t, Z, row * 2 * F + g), dot(t, X8, row, UP8, e * 2 * F + g, 0, D));
        note(&y, value(t, Y, row * D + d), dot(t, H8, row, DOWN8, e * D + d, 0, F));
        note(&dh, value(t, DH, row * F + f), dot(t, DY8, row, DOWNT8, e * F + f, 0, D));
        note(&dx, value(t, DX, row * D + d), dot(t, DZ8, row, UPT8, e * D + d, 0, 2 * F));
    }
    result_error(t, fmax(fmax(relative(&z), relative(&y)), fmax(relative(&dh), relative(&dx))),
                 4e-3, "rows");
}

static void check_dp(struct test *t) {
    size_t F = (size_t)t->r.F;
    struct error dp = {0, 0};
    for (int s = 0; s < ROWS_SAMPLED; s++) {
        size_t row = draw(t, t->R);
        double sum = 0;
        for (size_t f = 0; f < F; f++) {
            double gate = z_value(t, row, f), up = z_value(t, row, F + f);
            sum += value(t, DH, row * F + f) * gate / (1 + exp(-gate)) * up;
        }
        note(&dp, ((const float *)t->a[DP].host)[row], sum);
    }
    result_error(t, relative(&dp), 1e-4, "dp");
}

/* Twice the product, since it was added once; zeros where an expert has no rows. */
static void check_weights(struct test *t) {
    size_t D = (size_t)t->r.D, F = (size_t)t->r.F;
    struct error up = {0, 0}, down = {0, 0};
    const float *dup = t->a[DW_UP].host, *ddown = t->a[DW_DOWN].host;
    for (int s = 0; s < SAMPLES; s++) {
        size_t e = draw(t, (size_t)t->r.E), f = draw(t, F), g = draw(t, 2 * F), d = draw(t, D),
               first = (size_t)t->offsets[e], n = (size_t)t->offsets[e + 1] - first;
        note(&up, dup[(e * 2 * F + g) * D + d], 2 * dot(t, DZT8, g, XT8, d, first, n));
        note(&down, ddown[(e * D + d) * F + f], 2 * dot(t, DYT8, d, HT8, f, first, n));
    }
    result_error(t, fmax(relative(&up), relative(&down)), 1e-3, "weights' gradients");
}

static void check_own(struct test *t) {
    struct grouped_rows r = {.offsets = t->a[OFFSETS].device, .E = t->r.E, .rows = (int)t->ld};
    size_t wrong = n_wrong_own(t, t->a[DW_UP], (size_t)t->r.D, r, weights_up) +
                   n_wrong_own(t, t->a[DW_DOWN], (size_t)t->r.F, r, weights_down);
    result(t, wrong == 0, "weights' gradients with own rows elsewhere");
}

/* ---- places ---- */

static const int by_rows[] = {Z, Y, DH, DX, DP};
enum { BY_ROWS = sizeof by_rows / sizeof *by_rows };

/* Of 2 bytes. */
static size_t cols_of(const struct test *t, int k) {
    return t->a[k].bytes / t->ld / sizeof(half_t);
}

/* Bytes that are not as they were, of codes and scales behind the last expert's rows. */
static size_t n_written_behind(const struct test *t, int m) {
    const struct eight *q = &t->eight[m];
    size_t written = 0;
    for (size_t i = 0; i < q->lines; i++)
        for (size_t j = 0; j < q->width; j++) {
            if (i < q->lines_used && j < q->width_used) continue;
            uint32_t bits;
            memcpy(&bits, &scales(t, m)[scale_at(q, i, j)], sizeof bits);
            written += codes(t, m)[i * q->width + j] != 0xff || bits != 0xffffffff;
        }
    return written;
}

/* Rows that pad are zero, those behind the last are as they were. */
static void check_places(struct test *t) {
    size_t written = 0, not_zero = 0;
    for (int i = 0; i < BY_ROWS; i++) {
        const half_t *x = t->a[by_rows[i]].host;
        size_t cols = cols_of(t, by_rows[i]);
        for (size_t j = t->R * cols; j < t->ld * cols; j++) written += x[j] != 0xffff;
        for (int e = 0; e < t->r.E; e++)
            for (size_t j = ((size_t)t->offsets[e] + (size_t)t->counts[e]) * cols;
                 j < (size_t)t->offsets[e + 1] * cols; j++)
                not_zero += (x[j] & 0x7fff) != 0;
    }
    for (int m = 0; m < N_EIGHT; m++) written += n_written_behind(t, m);
    tap_ok(written == 0 && not_zero == 0,
           "E %d, D %d, F %d, %s: %zu written behind the rows, %zu not zero in rows that pad",
           t->r.E, t->r.D, t->r.F, t->r.routing, written, not_zero);
}

/* ---- the same again ---- */

struct kept {
    void *of[N_ARRAYS];
};

static struct kept keep(const struct test *t) {
    struct kept k = {{0}};
    for (int i = FIRST_RESULT; i < N_ARRAYS; i++) {
        k.of[i] = memory_alloc(t->a[i].bytes);
        memcpy(k.of[i], t->a[i].host, t->a[i].bytes);
    }
    return k;
}

static int n_differ(const struct test *t, const struct kept *k) {
    int n = 0;
    for (int i = FIRST_RESULT; i < N_ARRAYS; i++)
        n += memcmp(k->of[i], t->a[i].host, t->a[i].bytes) != 0;
    return n;
}

static void drop(struct kept *k) {
    for (int i = FIRST_RESULT; i < N_ARRAYS; i++) memory_free(k->of[i]);
}

static void check_bits(struct test *t, const struct kept *first) {
    static const int multiprocessors[] = {0, 2, 10, 64};
    int differ = 0;
    for (int i = 0; i < 4; i++) {
        run(t, multiprocessors[i]);
        differ += n_differ(t, first);
    }
    result(t, differ == 0, "the same bits again, and on 2, 10, 64 multiprocessors");
}

/* Bytes of the rows before these that are not as they were. */
static size_t n_written(const struct test *t, int k) {
    size_t written = 0;
    uint8_t *x = memory_alloc(before(t, k));
    cuda(cudaMemcpy(x, t->stash[k], before(t, k), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < before(t, k); i++) written += x[i] != 0xff;
    memory_free(x);
    return written;
}

/* The same of z in eight bits. */
static size_t n_written_before_z(const struct test *t) {
    size_t written = 0, width = 2 * (size_t)t->r.F, rows = BEFORE_Z + t->ld, n = BEFORE_Z * width;
    if (!t->stashed_z.codes) return 0;
    uint8_t *codes = memory_alloc(n);
    uint32_t *scales = memory_alloc_array(rows * width / SIDE, sizeof *scales);
    cuda(cudaMemcpy(codes, t->stashed_z.codes, n, cudaMemcpyDeviceToHost));
    cuda(cudaMemcpy(scales, t->stashed_z.scales, rows * width / SIDE * sizeof *scales,
                    cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++) written += codes[i] != 0xff;
    for (size_t j = 0; j < width / SIDE; j++)
        for (size_t i = 0; i < BEFORE_Z; i++) written += scales[j * rows + i] != 0xffffffff;
    memory_free(codes);
    memory_free(scales);
    return written;
}

/* Behind rows that are NaN the results are the same to the bit, and those rows stay. */
static void check_stash(struct test *t, const struct kept *first) {
    static const int stashed[] = {X, Z};
    const int32_t bases[] = {BEFORE_X, BEFORE_Z};
    for (int i = 0; i < 2; i++) {
        int k = stashed[i];
        cuda(cudaMalloc((void **)&t->stash[k], before(t, k) + t->a[k].bytes));
        cuda(cudaMemset(t->stash[k], 0xff, before(t, k)));
        cuda(cudaMemcpy(t->stash[k] + before(t, k), t->a[k].device, t->a[k].bytes,
                        cudaMemcpyDeviceToDevice));
    }
    if (t->low_z) {
        size_t rows = BEFORE_Z + t->ld, width = 2 * (size_t)t->r.F;
        cuda(cudaMalloc((void **)&t->stashed_z.codes, rows * width));
        cuda(cudaMalloc((void **)&t->stashed_z.scales, rows * width / SIDE * sizeof(float)));
        cuda(cudaMemset(t->stashed_z.codes, 0xff, rows * width));
        cuda(cudaMemset(t->stashed_z.scales, 0xff, rows * width / SIDE * sizeof(float)));
    }
    cuda(cudaMalloc((void **)&t->bases, sizeof bases));
    cuda(cudaMemcpy(t->bases, bases, sizeof bases, cudaMemcpyHostToDevice));
    run(t, 0);
    result(t,
           n_differ(t, first) == 0 &&
               n_written(t, X) + n_written(t, Z) + n_written_before_z(t) == 0,
           "the same bits behind others' rows, which stay");
    for (int i = 0; i < 2; i++) {
        cuda(cudaFree(t->stash[stashed[i]]));
        t->stash[stashed[i]] = NULL;
    }
    cuda(cudaFree(t->stashed_z.codes));
    cuda(cudaFree(t->stashed_z.scales));
    t->stashed_z = none;
    cuda(cudaFree(t->bases));
    t->bases = NULL;
}

/* ---- NaN ---- */

static size_t n_numbers(const float *x, size_t n) {
    size_t numbers = 0;
    for (size_t i = 0; i < n; i++) numbers += !isnan(x[i]);
    return numbers;
}

/* One NaN in x: its row of z, y and dx is NaN, and its expert's gradients; all others have the bits
 * that they had. */
static void check_nan(struct test *t, const struct kept *first) {
    size_t D = (size_t)t->r.D, F = (size_t)t->r.F, e = 0;
    while (t->counts[e] == 0) e++;
    size_t row = (size_t)t->offsets[e] + (size_t)t->counts[e] / 2, numbers = 0, others = 0;
    half_t *x = (half_t *)t->a[X].host + row * D + 5, was = *x;
    *x = 0x7fc0;
    both_put(t->a[X]);
    run(t, 0);
    for (int i = 0; i < BY_ROWS; i++) {
        int k = by_rows[i];
        size_t bytes = t->a[k].bytes / t->ld, at_row = row * bytes;
        const char *now = t->a[k].host, *then = first->of[k];
        others += memcmp(now, then, at_row) != 0;
        others += memcmp(now + at_row + bytes, then + at_row + bytes,
                         t->a[k].bytes - at_row - bytes) != 0;
        for (size_t j = 0; k != DP && k != DH && j < bytes / sizeof(half_t); j++)
            numbers += !isnan(value(t, k, at_row / sizeof(half_t) + j));
    }
    const struct {
        int k;
        size_t n;
    } weights[] = {{DW_UP, 2 * F * D}, {DW_DOWN, D * F}};
    for (int i = 0; i < 2; i++) {
        const float *now = t->a[weights[i].k].host, *then = first->of[weights[i].k];
        size_t n = weights[i].n;
        numbers += n_numbers(now + e * n, n);
        for (size_t o = 0; o < (size_t)t->r.E; o++)
            others += o != e && memcmp(now + o * n, then + o * n, n * sizeof *now) != 0;
    }
    size_t wrong = n_wrong(t, X8) + n_wrong(t, XT8);
    tap_ok(
        numbers == 0 && others == 0 && wrong == 0,
        "E %d, D %d, F %d, %s: a NaN: %zu numbers where it belongs, %zu arrays differ elsewhere, "
        "%zu codes and scales are not those of formats.h",
        t->r.E, t->r.D, t->r.F, t->r.routing, numbers, others, wrong);
    *x = was;
    both_put(t->a[X]);
}

/* ---- projections ---- */

/* z[rows, 2F] = x up^T, dh[rows, F] = dy down, [D, D] += dy^T x. What lies behind the rows, up to
 * the next multiple of 128, is not read and not written. */
static void run_dense(struct test *t) {
    struct grouped_rows r = {.E = 1, .rows = (int)t->ld};
    struct both *a = t->a;
    int rows = t->r.rows, D = t->r.D, F = t->r.F;
    size_t used = (size_t)rows * (size_t)D * sizeof(half_t);
    poison(t);
    cuda(cudaMemset((char *)a[X].device + used, 0xff, a[X].bytes - used));
    cuda(cudaMemset((char *)a[DY].device + used, 0xff, a[DY].bytes - used));
    quantise_weights(matrix(t, UP8), none, a[UP].device, 1, 2 * F, D, 0);
    quantise_weights(none, matrix(t, DOWNT8), a[DOWN].device, 1, D, F, 0);
    quantise_dense(matrix(t, X8), matrix(t, XT8), /*square=*/1, a[X].device, rows, D, 0);
    quantise_dense(matrix(t, DY8), none, 0, a[DY].device, rows, D, 0);
    quantise_dense(none, matrix(t, DYT8), 0, a[DY].device, rows, D, 0);
    grouped_fp8_dense(t->kernels, a[Z].device, matrix(t, X8), matrix(t, UP8), r, rows, 2 * F, D, 0);
    grouped_fp8_dense(t->kernels, a[DH].device, matrix(t, DY8), matrix(t, DOWNT8), r, rows, F, D,
                      0);
    for (int add = 0; add < 2; add++)
        grouped_fp8_weights(t->kernels, gradient_whole(a[DW_UP].device, add), matrix(t, DYT8),
                            matrix(t, XT8), r, D, D, 0);
    get_results(t);
}

static void check_dense(struct test *t) {
    size_t D = (size_t)t->r.D, F = (size_t)t->r.F, rows = (size_t)t->r.rows, written = 0, wrong = 0;
    struct error z = {0, 0}, dh = z, dw = z;
    static const int eight[] = {X8, XT8, DY8, DYT8, UP8, DOWNT8}, results[] = {Z, DH};
    for (int i = 0; i < 6; i++) wrong += n_wrong(t, eight[i]);
    for (int s = 0; s < SAMPLES; s++) {
        size_t row = draw(t, rows), g = draw(t, 2 * F), f = draw(t, F), d = draw(t, D),
               c = draw(t, D);
        note(&z, value(t, Z, row * 2 * F + g), dot(t, X8, row, UP8, g, 0, D));
        note(&dh, value(t, DH, row * F + f), dot(t, DY8, row, DOWNT8, f, 0, D));
        note(&dw, ((const float *)t->a[DW_UP].host)[d * D + c],
             2 * dot(t, DYT8, d, XT8, c, 0, t->R));
    }
    for (int i = 0; i < 2; i++) {
        const half_t *x = t->a[results[i]].host;
        size_t cols = cols_of(t, results[i]);
        for (size_t j = rows * cols; j < t->ld * cols; j++) written += x[j] != 0xffff;
    }
    result(t, wrong == 0 && written == 0, "projections: codes and scales, nothing behind the rows");
    result_error(t, fmax(relative(&z), relative(&dh)), 4e-3, "projections: rows");
    result_error(t, relative(&dw), 1e-3, "projections: weights' gradients");
}

/* The same with z in eight bits: nothing else changes in the forward pass. */
static void check_low_z(struct test *t) {
    run(t, 0);
    struct kept before = keep(t);
    t->low_z = 1;
    run(t, 0);
    struct kept first = keep(t);
    int same = memcmp(before.of[EIGHT + 2 * H8], first.of[EIGHT + 2 * H8],
                      t->a[EIGHT + 2 * H8].bytes) == 0 &&
               memcmp(before.of[Y], first.of[Y], t->a[Y].bytes) == 0;
    result(t, same, "z in eight bits: the same h and results");
    check_codes(t);
    check_made(t);
    check_rows(t);
    check_dp(t);
    check_weights(t);
    check_places(t);
    check_bits(t, &first);
    check_stash(t, &first);
    drop(&before);
    drop(&first);
    t->low_z = 0;
}

int main(int argc, char **argv) {
    enum { ROUNDS = sizeof rounds / sizeof *rounds, DENSE = sizeof dense / sizeof *dense };
    const char *why;
    tap_open(&argc, &argv);
    if (!getenv("TEST_BACKEND")) tap_skip_all("needs a GPU");
    struct grouped *kernels = grouped_open(&why);
    if (!kernels) tap_skip_all(why);
    for (int i = 0; i < ROUNDS + DENSE; i++) {
        if (!tap_wanted(argc, argv, i + 1, ROUNDS + DENSE)) continue;
        struct test t = {.r = i < ROUNDS ? rounds[i] : dense[i - ROUNDS],
                         .kernels = kernels,
                         .seed = 100000 * (uint64_t)i};
        open_round(&t);
        if (i >= ROUNDS) {
            run_dense(&t);
            check_dense(&t);
            close_round(&t);
            continue;
        }
        run(&t, 0);
        struct kept first = keep(&t);
        check_codes(&t);
        check_made(&t);
        check_rows(&t);
        check_dp(&t);
        check_weights(&t);
        check_own(&t);
        check_places(&t);
        check_bits(&t, &first);
        check_stash(&t, &first);
        check_nan(&t, &first);
        drop(&first);
        check_low_z(&t);
        close_round(&t);
    }
    grouped_close(kernels);
    return tap_close();
}
