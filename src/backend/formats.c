#include "config.h"
#include "backend/formats.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* Bits of the fraction, bias, largest code that is a number; the least number that is not
 * subnormal, and the step between those that are. */
static const struct shape_of_code {
    uint32_t fraction, bias, largest;
    float normal, step;
} codes_of[] = {
    [E4M3] = {3, 7, 0x7e, 0x1p-6f, 0x1p-9f}, [E5M2] = {2, 15, 0x7b, 0x1p-14f, 0x1p-16f}};

static uint32_t bits_of(float x) {
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static float of_bits(uint32_t b) {
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* FP32 with fewer places: the fraction is rounded where it is, a carry goes into the exponent, and
 * the exponent gets the other bias. Below the normal numbers all have the same step: next to 2^23
 * steps FP32 has it, too, and an addition rounds to it. */
uint8_t format_encode(enum element e, float x) {
    const struct shape_of_code *c = &codes_of[e];
    uint32_t bits = bits_of(x), sign = bits >> 31 << 7, rest = bits & 0x7fffffff,
             cut = 23 - c->fraction, code;
    if (rest > 0x7f800000) return (uint8_t)(sign | 0x7f);
    if (of_bits(rest) < c->normal) {
        float steps = c->step * 0x1p23f;
        code = bits_of(of_bits(rest) + steps) - bits_of(steps);
    } else {
        rest += (1u << (cut - 1)) - 1 + (rest >> cut & 1);
        code = (rest >> cut) - ((127 - c->bias) << c->fraction);
    }
    return (uint8_t)(sign | (code > c->largest ? c->largest : code));
}

float format_decode(enum element e, uint8_t code) {
    const struct shape_of_code *c = &codes_of[e];
    uint32_t sign = (uint32_t)code >> 7 << 31, rest = code & 0x7f;
    if (rest > c->largest) {
        int infinite = e == E5M2 && rest == 0x7c;
        return of_bits(sign | (infinite ? 0x7f800000 : 0x7fc00000));
    }
    if (rest >> c->fraction == 0) return of_bits(sign | bits_of((float)rest * c->step));
    return of_bits(sign | ((rest << (23 - c->fraction)) + ((127 - c->bias) << 23)));
}

float format_largest(enum element e) {
    return e == E4M3 ? 448 : 57344;
}

/* The least exponent with x <= 2^exponent. */
static int exponent_above(float x) {
    int exponent;
    float half = frexpf(x, &exponent);
    return half == 0.5f ? exponent - 1 : exponent;
}

uint8_t e8m0_encode(float scale) {
    if (isnan(scale)) return 0xff;
    if (!(scale > 0)) return 0;
    if (isinf(scale)) return 0xfe;
    int code = exponent_above(scale) + 127;
    return (uint8_t)(code < 0 ? 0 : code > 0xfe ? 0xfe : code);
}

float e8m0_decode(uint8_t code) {
    if (code == 0xff) return NAN;
    return code == 0 ? of_bits(1u << 22) : of_bits((uint32_t)code << 23); /* 2^-127 is subnormal */
}

float format_scale(enum scale s, enum element e, float amax) {
    float scale = amax / format_largest(e);
    if (isnan(amax)) return NAN;
    if (s == FORMAT_E8M0) return e8m0_decode(e8m0_encode(scale));
    if (amax == 0) return 1;
    if (isinf(scale)) return scale;
    /* below the normal numbers it would have fewer places than the elements, and no inverse */
    if (scale < 0x1p-126f) return 0x1p-126f;
    return s == FORMAT_POWER ? ldexpf(1, exponent_above(scale)) : scale;
}

static float amax_of(const float *x, int rows, int cols, size_t ld) {
    float most = 0;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            float magnitude = fabsf(x[(size_t)i * ld + (size_t)j]);
            if (!(magnitude <= most)) most = magnitude; /* a NaN stays */
            if (isnan(most)) return most;
        }
    return most;
}

static int smaller(int a, int b) {
    return a < b ? a : b;
}

void format_round(struct format f, const float *x, int rows, int cols, size_t ld, float *out,
                  size_t ld_out, uint8_t *codes, float *scales) {
    for (int i0 = 0; i0 < rows; i0 += f.rows)
        for (int j0 = 0; j0 < cols; j0 += f.cols) {
            int h = smaller(f.rows, rows - i0), w = smaller(f.cols, cols - j0);
            const float *from = x + (size_t)i0 * ld + (size_t)j0;
            float scale = format_scale(f.scale, f.element, amax_of(from, h, w, ld));
            float inverse = 1 / scale;
            if (scales) *scales++ = scale;
            for (int i = 0; i < h; i++)
                for (int j = 0; j < w; j++) {
                    uint8_t code =
                        format_encode(f.element, from[(size_t)i * ld + (size_t)j] * inverse);
                    if (codes) codes[(size_t)(i0 + i) * (size_t)cols + (size_t)(j0 + j)] = code;
                    if (out)
                        out[(size_t)(i0 + i) * ld_out + (size_t)(j0 + j)] =
                            format_decode(f.element, code) * scale;
                }
        }
}

static void raise_to(double *most, double x) {
    if (x > *most) *most = x;
}

/* x[rows, cols] is one block. */
static void losses_of_block(struct format f, const float *x, int rows, int cols, size_t ld,
                            double *sums) {
    float stands[FORMAT_MOST], scale, amax = amax_of(x, rows, cols, ld);
    int64_t values = 0, underflows = 0, largest = 0;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) values += x[(size_t)i * ld + (size_t)j] != 0;
    sums[LOW_VALUES] += (double)values;
    if (!isfinite(amax)) sums[LOW_NONFINITE] += (double)values;
    if (amax == 0 || !isfinite(amax)) return;
    format_round(f, x, rows, cols, ld, stands, (size_t)cols, NULL, &scale);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            float value = x[(size_t)i * ld + (size_t)j], y = stands[i * cols + j];
            double error = (double)value - (double)y;
            underflows += value != 0 && y == 0;
            largest += fabsf(y) == format_largest(f.element) * scale;
            sums[LOW_ERROR2] += error * error;
            sums[LOW_SQUARES] += (double)value * (double)value;
        }
    sums[LOW_UNDERFLOWS] += (double)underflows;
    sums[LOW_LARGEST] += (double)largest;
    raise_to(&sums[LOW_AMAX], (double)amax);
    raise_to(&sums[LOW_SCALE], (double)scale);
    raise_to(&sums[LOW_INVERSE], 1 / (double)scale);
}

void format_losses(struct format f, const float *x, int rows, int cols, size_t ld,
                   double sums[N_LOW_SUMS]) {
    assert(f.rows * f.cols <= FORMAT_MOST);
    for (int i = 0; i < rows; i += f.rows)
        for (int j = 0; j < cols; j += f.cols)
            losses_of_block(f, x + (size_t)i * ld + (size_t)j, smaller(f.rows, rows - i),
                            smaller(f.cols, cols - j), ld, sums);
}
