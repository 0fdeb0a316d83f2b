/* kernels/mxfp8.h and mxfp8_pack.h against the definition (src/backend/formats.h), bit for bit:
 * every finite BF16 number, outliers, zeros, subnormals, infinities and NaNs; along rows and down
 * columns, behind others' rows, in place, where rows end within a block; scales where they belong;
 * and nothing written where none are. */
#include "config.h"
#include "backend/formats.h"
#include "grouped.h"
#include "mxfp8.h"
#include "mxfp8_pack.h"
#include "mxfp8_packed.h"

enum { BEFORE = 96, AFTER = 64 };

struct test {
    const char *text;
    int rows, cols, used; /* used: rows, where the device says so; 0: all */
    int in_place;
};
static const struct test tests[] = {{"every BF16 number", 512, 128, 0, 0},
                                    {"some rows of many", 512, 96, 320, 0},
                                    {"rows that end within a block", 45, 160, 0, 0},
                                    {"one row", 1, 32, 0, 0},
                                    {"in place", 200, 256, 130, 1}};

/* The first test has all bit patterns; others normal numbers, blocks of which are odd. */
static void fill(half_t *x, const struct test *t, int all) {
    size_t n = (size_t)t->rows * (size_t)t->cols;
    for (size_t i = 0; i < n; i++)
        x[i] = all ? (half_t)(i % 65536) : to_half(random_normal(3, RANDOM_TEST, i));
    for (size_t i = 0; i < n && !all; i++) {
        size_t block = i / MXFP8_BLOCK % 9;
        if (block == 1) x[i] = 0;
        if (block == 2 && i % 31 == 0) x[i] = to_half(1e30f);
        if (block == 3) x[i] = (half_t)(i % 256); /* subnormal, and next to it */
        if (block == 4 && i % 200 == 7) x[i] = 0x7f80;
        if (block == 5 && i % 150 == 3) x[i] = 0x7fc0;
        if (block == 6) x[i] = to_half(to_float(x[i]) * 0x1p-120f);
    }
}

/* What stands in BF16 for the values of formats.h; a NaN is any. */
static void expected(half_t *out, const half_t *x, const struct test *t, int used, int down) {
    size_t n = (size_t)used * (size_t)t->cols;
    float *v = memory_alloc_array(n, sizeof *v);
    struct format f = {E4M3, FORMAT_E8M0, down ? MXFP8_BLOCK : 1, down ? 1 : MXFP8_BLOCK};
    for (size_t i = 0; i < n; i++) v[i] = to_float(x[i]);
    format_round(f, v, used, t->cols, (size_t)t->cols, v, (size_t)t->cols, NULL, NULL);
    for (size_t i = 0; i < n; i++) out[i] = isnan(v[i]) ? 0x7fc0 : to_half(v[i]);
    memory_free(v);
}

static void check(const struct test *t, int down, int all) {
    int used = t->used ? t->used : t->rows;
    size_t row = (size_t)t->cols, n = (size_t)t->rows * row, before = BEFORE * row,
           total = before + n + AFTER * row, wrong = 0, written = 0;
    struct both x = both_new(total * sizeof(half_t)), y = both_new(total * sizeof(half_t)),
                numbers = both_new(2 * sizeof(int32_t));
    half_t *want = memory_alloc_array(n, sizeof *want), *from = (half_t *)x.host + before,
           *out = t->in_place ? x.host : y.host;
    ((int32_t *)numbers.host)[0] = used, ((int32_t *)numbers.host)[1] = BEFORE;
    memset(x.host, 0xff, x.bytes);
    memset(y.host, 0xff, y.bytes);
    fill(from, t, all);
    expected(want, from, t, used, down);
    for (size_t i = (size_t)used * row; i < n; i++) from[i] = 0xffff;
    both_put(x);
    both_put(y);
    both_put(numbers);
    const int32_t *at = numbers.device;
    mxfp8_round(t->in_place ? x.device : y.device, x.device,
                down ? MXFP8_DOWN_COLUMNS : MXFP8_ALONG_ROWS,
                (struct mxfp8_rows){.rows = t->rows,
                                    .last = t->used ? at : NULL,
                                    .from = at + 1,
                                    .to = t->in_place ? at + 1 : NULL},
                t->cols, 0);
    cuda(cudaDeviceSynchronize());
    both_get(t->in_place ? x : y);
    size_t first = t->in_place ? before : 0, end = first + (size_t)used * row;
    for (size_t i = 0; i < total; i++) {
        if (i < first || i >= end)
            written += out[i] != 0xffff;
        else if (isnan(to_float(out[i])) ? want[i - first] != 0x7fc0 : out[i] != want[i - first])
            wrong++;
    }
    tap_ok(wrong == 0 && written == 0,
           "%s, %s: %zu of %zu values are not those of formats.h, %zu written elsewhere", t->text,
           down ? "down columns" : "along rows", wrong, end - first, written);
    both_free(x);
    both_free(y);
    both_free(numbers);
    memory_free(want);
}

/* ---- packed ---- */

enum { MATRICES = 4, TAIL = 512, UNTOUCHED = 0xa5 };

/* n matrices of `rows` rows, or (rows 0) of those that the offsets say, multiples of 128. */
struct packed {
    const char *text;
    int n, rows, cols;
    int32_t offsets[MATRICES + 1];
};
static const struct packed packs[] = {
    {"every BF16 number", 1, 512, 128, {0}},
    {"tokens that end within a block", 1, 173, 160, {0}},
    {"one token", 1, 1, 32, {0}},
    {"weights of three experts", 3, 96, 224, {0}},
    {"weights in whole tiles", 2, 256, 384, {0}},
    {"rows of experts, two without any", 4, 0, 96, {0, 128, 128, 512, 512}},
    {"rows of experts in whole tiles", 3, 0, 256, {0, 256, 384, 512}}};

/* Bytes that differ from those expected, or that were written behind them. */
static size_t different(const struct both *got, const uint8_t *want, size_t n) {
    const uint8_t *b = got->host;
    size_t wrong = 0;
    for (size_t i = 0; i < got->bytes; i++) wrong += b[i] != (i < n ? want[i] : UNTOUCHED);
    return wrong;
}

static struct both untouched(size_t bytes) {
    struct both b = both_new(bytes + TAIL);
    memset(b.host, UNTOUCHED, b.bytes);
    both_put(b);
    return b;
}

static void check_packed(const struct packed *t, int all) {
    int total = t->rows ? t->n * t->rows : t->offsets[t->n];
    size_t elements = (size_t)total * (size_t)t->cols, most = 2 * elements + 65536,
           wrong[2][2] = {{0}};
    struct test numbers = {.rows = total, .cols = t->cols};
    struct both x = both_new(elements * sizeof(half_t)), offsets = both_new(sizeof t->offsets),
                got[2][2]; /* by row, by column; codes, scales */
    struct wanted want[2];
    float *values = memory_alloc_array(elements, sizeof *values);
    fill(x.host, &numbers, all);
    memcpy(offsets.host, t->offsets, sizeof t->offsets);
    for (size_t i = 0; i < elements; i++) values[i] = to_float(((half_t *)x.host)[i]);
    both_put(x);
    both_put(offsets);
    for (int down = 0; down < 2; down++) {
        want[down] = (struct wanted){memory_alloc(most), memory_alloc(most), 0, 0};
        for (int e = 0; e < t->n; e++) {
            int first = t->rows ? e * t->rows : t->offsets[e],
                rows = t->rows ? t->rows : t->offsets[e + 1] - first;
            expect(&want[down], values + (size_t)first * (size_t)t->cols, rows, t->cols, down);
        }
        got[down][0] = untouched(want[down].n_codes), got[down][1] = untouched(want[down].n_scales);
    }
    struct mxfp8_set set = {
        .offsets = t->rows ? NULL : offsets.device, .n = t->n, .rows = t->rows ? t->rows : total};
    struct mxfp8_matrix out[2], none = {NULL, NULL};
    for (int down = 0; down < 2; down++)
        out[down] = (struct mxfp8_matrix){got[down][0].device, got[down][1].device};
    for (int alone = 0; alone < 2; alone++) { /* both at once, then each by itself */
        if (alone) {
            mxfp8_pack(out[0], none, x.device, set, t->cols, 0);
            mxfp8_pack(none, out[1], x.device, set, t->cols, 0);
        } else {
            mxfp8_pack(out[0], out[1], x.device, set, t->cols, 0);
        }
        cuda(cudaDeviceSynchronize());
        for (int down = 0; down < 2; down++)
            for (int k = 0; k < 2; k++) {
                both_get(got[down][k]);
                wrong[down][k] += different(&got[down][k], k ? want[down].scales : want[down].codes,
                                            k ? want[down].n_scales : want[down].n_codes);
                memset(got[down][k].host, UNTOUCHED, got[down][k].bytes);
                both_put(got[down][k]);
            }
    }
    for (int down = 0; down < 2; down++) {
        tap_ok(wrong[down][0] == 0 && wrong[down][1] == 0,
               "packed, %s, %s: %zu of %zu codes and %zu of %zu scales are not those of formats.h",
               t->text, down ? "transposed" : "by row", wrong[down][0], want[down].n_codes,
               wrong[down][1], want[down].n_scales);
        for (int k = 0; k < 2; k++) both_free(got[down][k]);
        memory_free(want[down].codes);
        memory_free(want[down].scales);
    }
    both_free(x);
    both_free(offsets);
    memory_free(values);
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    if (!getenv("TEST_BACKEND")) tap_skip_all("needs a GPU");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        for (int down = 0; down < 2; down++) check(&tests[i], down, i == 0);
    for (size_t i = 0; i < sizeof packs / sizeof *packs; i++) check_packed(&packs[i], i == 0);
    return tap_close();
}
