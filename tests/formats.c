/* Eight-bit formats against their definition, which here is a list of all numbers that a code can
 * be: the nearest one, of two the one with an even code. */
#include "config.h"
#include "backend/formats.h"
#include "base/random.h"
#include "tap.h"
#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    int exponents, fraction, bias, numbers; /* bits; codes from 0 on that are numbers */
    double largest;
} kinds[] = {[E4M3] = {"E4M3", 4, 3, 7, 127, 448}, [E5M2] = {"E5M2", 5, 2, 15, 124, 57344}};

/* Of a code without sign. */
static double number(enum element e, int code) {
    int exponent = code >> kinds[e].fraction, places = code % (1 << kinds[e].fraction);
    double fraction = (double)places / (1 << kinds[e].fraction);
    return exponent ? (1 + fraction) * exp2(exponent - kinds[e].bias)
                    : fraction * exp2(1 - kinds[e].bias);
}

static int nearest(enum element e, double x) {
    int best = 0;
    x = fmin(x, kinds[e].largest);
    for (int code = 1; code < kinds[e].numbers; code++) {
        double d = fabs(number(e, code) - x), least = fabs(number(e, best) - x);
        if (d < least || (d == least && code % 2 == 0)) best = code;
    }
    return best;
}

static int same(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static void check_codes(enum element e) {
    int wrong = 0;
    for (int code = 0; code < 256; code++) {
        int bare = code & 0x7f;
        float x = format_decode(e, (uint8_t)code);
        if (bare >= kinds[e].numbers) {
            int infinite = e == E5M2 && bare == 0x7c;
            wrong += infinite ? !isinf(x) || (signbit(x) != 0) != (code > 127) : !isnan(x);
            if (!infinite) wrong += !isnan(format_decode(e, format_encode(e, x)));
        } else {
            wrong += !same(x, (float)(code > 127 ? -number(e, bare) : number(e, bare)));
            wrong += format_encode(e, x) != code;
        }
    }
    tap_ok(wrong == 0 && format_largest(e) == (float)kinds[e].largest &&
               number(e, kinds[e].numbers - 1) == kinds[e].largest,
           "%s: all codes", kinds[e].name);
}

static int differs(enum element e, float x) {
    int code = nearest(e, fabs((double)x)) | (signbit(x) ? 0x80 : 0);
    return format_encode(e, x) != code;
}

static void check_rounding(enum element e) {
    int wrong = 0;
    for (int code = 0; code + 1 < kinds[e].numbers; code++) {
        float middle = (float)((number(e, code) + number(e, code + 1)) / 2);
        float around[] = {nextafterf(middle, 0), middle, nextafterf(middle, INFINITY)};
        for (int k = 0; k < 3; k++) wrong += differs(e, around[k]) + differs(e, -around[k]);
    }
    tap_ok(wrong == 0, "%s: between all neighbours", kinds[e].name);
    wrong = 0;
    for (uint64_t k = 0; k < 40000; k++) {
        uint32_t bits = (uint32_t)random_bits(3, RANDOM_TEST, k);
        float x;
        memcpy(&x, &bits, sizeof x);
        wrong += !isnan(x) && differs(e, x);
    }
    tap_ok(wrong == 0, "%s: numbers of any size", kinds[e].name);
    const float top = format_largest(e),
                beyond[] = {top, nextafterf(top, INFINITY), 1e30f, INFINITY};
    wrong = 0;
    for (int k = 0; k < 4; k++)
        wrong += format_decode(e, format_encode(e, beyond[k])) != top ||
                 format_decode(e, format_encode(e, -beyond[k])) != -top;
    wrong += !isnan(format_decode(e, format_encode(e, NAN))) || format_encode(e, -0.0f) != 0x80 ||
             format_encode(e, 0x1p-149f) != 0;
    tap_ok(wrong == 0, "%s: what is beyond, NaN, zeros", kinds[e].name);
}

static void check_e8m0(void) {
    int wrong = 0;
    for (int code = 0; code < 255; code++) {
        float x = e8m0_decode((uint8_t)code);
        wrong += (double)x != exp2(code - 127) || e8m0_encode(x) != code;
        wrong += e8m0_encode(nextafterf(x, INFINITY)) != (code < 254 ? code + 1 : 254);
        if (code > 0) wrong += e8m0_encode(nextafterf(x, 0)) != code;
    }
    wrong += !isnan(e8m0_decode(0xff)) || e8m0_encode(NAN) != 0xff || e8m0_encode(0) != 0 ||
             e8m0_encode(INFINITY) != 254 || e8m0_encode(0x1p-149f) != 0;
    tap_ok(wrong == 0, "E8M0: all codes, rounded up between them, saturating");
}

/* amax / largest as FP32 has it (FP64 has more than twice the places, so that rounding twice is
 * rounding once), or the least power of two that is not below the exact quotient. */
static float scale_of(enum scale s, enum element e, double amax) {
    double top = kinds[e].largest;
    int exponent = -127;
    if (isnan(amax)) return NAN;
    if (s != FORMAT_E8M0 && amax == 0) return 1;
    if (s == FORMAT_FP32) return (float)fmax((float)(amax / top), 0x1p-126);
    if (s == FORMAT_POWER) exponent = -126;
    while (exponent < 127 && ldexp(top, exponent) < amax) exponent++;
    return (float)ldexp(1, exponent);
}

static void check_scales(enum scale s, enum element e, const char *name) {
    int wrong = 0;
    for (uint64_t k = 0; k < 40000; k++) { /* any number that is not below 0 */
        uint32_t bits = (uint32_t)random_bits(4, RANDOM_TEST, k) >> 1;
        float amax;
        memcpy(&amax, &bits, sizeof amax);
        if (isinf(amax)) continue;
        float scale = format_scale(s, e, amax), expected = scale_of(s, e, amax);
        wrong += isnan(amax) ? !isnan(scale) : !same(scale, expected);
        if (isnan(amax) || s != FORMAT_E8M0) continue;
        wrong += e8m0_encode(amax / format_largest(e)) != ilogb(expected) + 127;
    }
    for (int exponent = -126; exponent < 119; exponent++) { /* at and next to where it turns */
        float turn = ldexpf(format_largest(e), exponent);
        float around[] = {nextafterf(turn, 0), turn, nextafterf(turn, INFINITY)};
        for (int k = 0; k < 3 && isfinite(around[k]); k++)
            wrong += !same(format_scale(s, e, around[k]), scale_of(s, e, around[k]));
    }
    wrong += format_scale(s, e, 0) != (s == FORMAT_E8M0 ? 0x1p-127f : 1);
    wrong += !isnan(format_scale(s, e, NAN));
    wrong += format_scale(s, e, INFINITY) != (s == FORMAT_E8M0 ? 0x1p127f : INFINITY);
    wrong += format_scale(s, e, 0x1p-149f) != (s == FORMAT_E8M0 ? 0x1p-127f : 0x1p-126f);
    tap_ok(wrong == 0, "scales, %s", name);
}

enum { ROWS = 140, COLS = 300, FAR = 32 * COLS + 7 };

/* Is the block at i0, j0 what the definition says? */
static int block_differs(struct format f, const float *x, const float *out, const uint8_t *codes,
                         float scale, int i0, int j0) {
    int wrong = 0, end = i0 + f.rows < ROWS ? i0 + f.rows : ROWS,
        stop = j0 + f.cols < COLS ? j0 + f.cols : COLS;
    double amax = 0;
    for (int i = i0; i < end; i++)
        for (int j = j0; j < stop; j++) {
            double magnitude = fabs((double)x[i * COLS + j]);
            if (!(magnitude <= amax)) amax = magnitude;
            if (isnan(amax)) i = end, j = stop;
        }
    float expected = scale_of(f.scale, f.element, amax);
    wrong += isnan(amax) ? !isnan(scale) : !same(scale, expected);
    for (int i = i0; i < end; i++)
        for (int j = j0; j < stop; j++) {
            int at = i * COLS + j;
            if (isnan(amax)) {
                wrong += !isnan(out[at]);
                continue;
            }
            /* float: both operations round */
            float inverse = 1 / expected, multiple = x[at] * inverse;
            int code = nearest(f.element, fabs((double)multiple));
            wrong += codes[at] != (code | (signbit(x[at]) ? 0x80 : 0)) ||
                     !same(out[at], copysignf((float)number(f.element, code) * expected, x[at]));
        }
    return wrong;
}

/* A matrix with a block of zeros, outliers, one that leaves nothing else of its block, numbers that
 * are subnormal, and a NaN: each value is what the definition says, and no block minds another. */
static void check_matrix(struct format f, const char *name) {
    static float x[ROWS * COLS], out[ROWS * COLS], scales[ROWS * COLS];
    static uint8_t codes[ROWS * COLS];
    int wrong = 0, block = 0, zeros = 0;
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = random_normal(5, RANDOM_TEST, (uint64_t)i) * (i % 97 == 0 ? 1000 : 1);
    for (int i = 0; i < f.rows && i < ROWS; i++)
        for (int j = 0; j < f.cols && j < COLS; j++) x[i * COLS + j] = 0;
    for (int j = COLS - 40; j < COLS; j++) x[j] *= 0x1p-140f;
    x[FAR] = -3e38f;
    x[(ROWS - 1) * COLS + COLS - 1] = NAN;
    format_round(f, x, ROWS, COLS, COLS, out, COLS, codes, scales);
    for (int i0 = 0; i0 < ROWS; i0 += f.rows)
        for (int j0 = 0; j0 < COLS; j0 += f.cols, block++)
            wrong += block_differs(f, x, out, codes, scales[block], i0, j0);
    for (int i = FAR - 7; i < FAR; i++) zeros += out[i] == 0;
    tap_ok(wrong == 0, "a matrix of 140 x 300, %s", name);
    if (f.cols > 7)
        tap_ok(zeros == 7 && out[FAR] < -2.9e38f, "%s: beside an outlier all is 0", name);
    format_round(f, x, ROWS, COLS, COLS, x, COLS, NULL, NULL);
    tap_ok(memcmp(x, out, sizeof x) == 0, "%s: in place", name);
}

/* What becomes of values in blocks of 1 x 8: two that are the largest, one that is too small, of a
 * tie, and one that is just not; none; a NaN; an outlier in a block that is cut off. Between the
 * rows lies what is not part of the matrix. */
static void check_losses(enum scale s, const char *name) {
    const float just = 1.1f * 0x1p-10f, nan = NAN;
    const float x[2][20] = {
        {448, -448, 1, 0, 0x1p-10f, -just, 0, 2.5f, 0, -0.0f, 0, 0, 0, 0, nan, nan, 7, 7, 7, 7},
        {nan, 1, 0, -2, 0, 0, 0, 0, 0x1p-10f, 896, 0, 0x1p-8f, -3, 0, 7, 7, 7, 7, 7, 7}};
    double sums[N_LOW_SUMS] = {0}, off = 0x1p-9 - (double)just, /* it becomes 2^-9 */
        expected[N_LOW_SUMS] = {[LOW_VALUES] = 6 + 3 + 4,
                                [LOW_NONFINITE] = 3,
                                [LOW_UNDERFLOWS] = 2,
                                [LOW_LARGEST] = 3,
                                [LOW_ERROR2] = 0x1p-20 + off * off + 0x1p-20,
                                [LOW_SQUARES] = 2 * 448.0 * 448 + 1 + 0x1p-20 +
                                                (double)just * (double)just + 2.5 * 2.5 + 0x1p-20 +
                                                896.0 * 896 + 0x1p-16 + 9,
                                [LOW_AMAX] = 896,
                                [LOW_SCALE] = 2,
                                [LOW_INVERSE] = 1};
    for (int times = 1; times <= 2; times++) {
        int wrong = 0;
        format_losses((struct format){E4M3, s, 1, 8}, x[0], 2, 14, 20, sums);
        for (int i = 0; i < N_LOW_SUMS; i++) {
            double want = i < LOW_AMAX ? times * expected[i] : expected[i];
            int exact = i != LOW_ERROR2 && i != LOW_SQUARES;
            if (exact ? sums[i] == want : fabs(sums[i] - want) <= 1e-14 * want) continue;
            tap_note("sum %d is %.17g, not %.17g", i, sums[i], want);
            wrong++;
        }
        tap_ok(wrong == 0, "losses of %s, %d times", name, times);
    }
}

/* The same as what format_round says, of blocks of several rows; an infinity is none of them. */
static void check_losses_of_matrix(struct format f, const char *name) {
    static float x[ROWS * COLS], out[ROWS * COLS], scales[ROWS * COLS];
    double sums[N_LOW_SUMS] = {0}, error2 = 0, squares = 0, underflows = 0, most = 0, least = 1e300;
    int n = 0;
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = random_normal(6, RANDOM_TEST, (uint64_t)i) * (i % 97 == 0 ? 1e5f : 1);
    format_round(f, x, ROWS, COLS, COLS, out, COLS, NULL, scales);
    for (int i = 0; i < ROWS * COLS; i++) {
        double error = (double)x[i] - (double)out[i];
        error2 += error * error, squares += (double)x[i] * (double)x[i];
        underflows += x[i] != 0 && out[i] == 0;
    }
    for (int i = 0; i < ROWS; i += f.rows)
        for (int j = 0; j < COLS; j += f.cols, n++)
            most = fmax(most, (double)scales[n]), least = fmin(least, (double)scales[n]);
    format_losses(f, x, ROWS, COLS, COLS, sums);
    tap_ok(sums[LOW_VALUES] == ROWS * COLS && sums[LOW_UNDERFLOWS] == underflows &&
               underflows > 0 && fabs(sums[LOW_ERROR2] / error2 - 1) < 1e-12 &&
               fabs(sums[LOW_SQUARES] / squares - 1) < 1e-12 && sums[LOW_SCALE] == most &&
               (float)(1 / sums[LOW_INVERSE]) == (float)least && sums[LOW_LARGEST] > 0 &&
               sums[LOW_NONFINITE] == 0,
           "losses of a matrix of 140 x 300, %s: %g underflow, error %.3g", name, underflows,
           sqrt(error2 / squares));
    memset(sums, 0, sizeof sums);
    x[0] = -INFINITY;
    format_losses(f, x, ROWS, COLS, COLS, sums);
    tap_ok(sums[LOW_NONFINITE] == f.rows * f.cols && sums[LOW_VALUES] == ROWS * COLS &&
               isfinite(sums[LOW_ERROR2]) && sums[LOW_AMAX] < 1e9,
           "%s: a block with an infinity is left out", name);
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    for (int e = E4M3; e <= E5M2; e++) {
        check_codes((enum element)e);
        check_rounding((enum element)e);
    }
    check_e8m0();
    check_scales(FORMAT_FP32, E4M3, "FP32, E4M3");
    check_scales(FORMAT_POWER, E4M3, "powers of two, E4M3");
    check_scales(FORMAT_E8M0, E4M3, "E8M0, E4M3");
    check_scales(FORMAT_E8M0, E5M2, "E8M0, E5M2");
    check_matrix((struct format){E4M3, FORMAT_FP32, 1, 128}, "1 x 128, FP32");
    check_matrix((struct format){E4M3, FORMAT_POWER, 128, 128}, "128 x 128, powers of two");
    check_matrix((struct format){E4M3, FORMAT_FP32, 128, 1}, "128 x 1, FP32");
    check_matrix((struct format){E4M3, FORMAT_E8M0, 1, 32}, "1 x 32, E8M0");
    check_matrix((struct format){E5M2, FORMAT_E8M0, 32, 1}, "32 x 1, E8M0, E5M2");
    check_losses(FORMAT_FP32, "blocks with scales in FP32");
    check_losses(FORMAT_E8M0, "blocks with E8M0");
    check_losses_of_matrix((struct format){E4M3, FORMAT_FP32, 1, 128}, "1 x 128, FP32");
    check_losses_of_matrix((struct format){E4M3, FORMAT_FP32, 128, 128}, "128 x 128, FP32");
    check_losses_of_matrix((struct format){E4M3, FORMAT_E8M0, 1, 32}, "1 x 32, E8M0");
    return tap_close();
}
