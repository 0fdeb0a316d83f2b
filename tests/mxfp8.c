/* kernels/mxfp8.h against the definition (src/backend/formats.h), bit for bit: every finite BF16
 * number, outliers, zeros, subnormals, infinities and NaNs; along rows and down columns, behind
 * others' rows, in place, where rows end within a block; and nothing written where none are. */
#include "config.h"
#include "backend/formats.h"
#include "grouped.h"
#include "mxfp8.h"

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

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    if (!getenv("TEST_BACKEND")) tap_skip_all("needs a GPU");
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        for (int down = 0; down < 2; down++) check(&tests[i], down, i == 0);
    return tap_close();
}
