/* Eight-bit floating point as matrix products take it: values in blocks that share a scale.
 *
 * E4M3 and E5M2 are those of Micikevicius et al. 2022 (OCP FP8): E4M3 has bias 7, no infinity, one
 * NaN (0x7f, 0xff), and reaches 448; E5M2 has bias 15, infinities and NaNs as IEEE has them, and
 * reaches 57344. E8M0 is the scale of OCP MX: 2^(code - 127), 0xff is NaN. Values are rounded to
 * nearest even; what is beyond the largest saturates, infinities too; NaN stays NaN.
 *
 * A scale is chosen so that the block's largest magnitude (amax) reaches at most the largest value
 * of the elements, 448 for E4M3: amax / 448, rounded as FP32 does and at least 2^-126
 * (FORMAT_FP32); that up to a power of two (FORMAT_POWER); or the quotient up to a power of two as
 * E8M0, saturating at 2^-127 and 2^127 (FORMAT_E8M0). A block of zeros has scale 1, in E8M0 code 0;
 * one with a NaN has scale NaN, in E8M0 code 0xff, and is NaN as a whole.
 *
 * The code of a value is that of x * (1 / scale), both operations in FP32: as fast as it is on a
 * GPU, where a division a value is not. A block with an infinity is not finite either: its elements
 * are NaN under an FP32 scale; under an E8M0 scale, which saturates, the infinity is 448 * 2^127,
 * which FP32 takes for infinity. */
#ifndef REGULON_BACKEND_FORMATS_H
#define REGULON_BACKEND_FORMATS_H
#include "low_sums.h"
#include <stddef.h>
#include <stdint.h>

enum element { E4M3, E5M2 };
enum scale { FORMAT_FP32, FORMAT_POWER, FORMAT_E8M0 };

uint8_t format_encode(enum element e, float x);
float format_decode(enum element e, uint8_t code);
float format_largest(enum element e);

uint8_t e8m0_encode(float scale); /* rounded up; 0 and below: code 0; NaN: 0xff */
float e8m0_decode(uint8_t code);

/* The scale of a block whose largest magnitude is amax, or NaN. What x / scale encodes, decoded and
 * times the scale, stands for x. */
float format_scale(enum scale s, enum element e, float amax);

/* A way to write a matrix: elements, scales, and the blocks that share one. */
struct format {
    enum element element;
    enum scale scale;
    int rows, cols; /* of a block; cut off at the matrix's ends */
};

/* x[rows, cols] (row stride ld) as the format holds it, back in FP32: out, row stride ld_out, which
 * may be x itself, or NULL. codes[rows, cols], dense, or NULL; scales, one a block, row-major, or NULL. */
void format_round(struct format f, const float *x, int rows, int cols, size_t ld, float *out,
                  size_t ld_out, uint8_t *codes, float *scales);

/* Adds what format_round does to x[rows, cols] (row stride ld) to sums; blocks, and the values of
 * each, in their order. A block has FORMAT_MOST values at most. */
enum { FORMAT_MOST = 128 * 128 };
void format_losses(struct format f, const float *x, int rows, int cols, size_t ld,
                   double sums[N_LOW_SUMS]);
#endif
