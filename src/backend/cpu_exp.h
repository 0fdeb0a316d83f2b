/* exp for loops that the compiler turns into vector code, which it cannot do with a call into libm.
 */
#ifndef REGULON_BACKEND_CPU_EXP_H
#define REGULON_BACKEND_CPU_EXP_H
#include <stdint.h>
#include <string.h>

/* e^x; 0 below -87.3, e^88 above 88, NaN for NaN. x = n ln 2 + r, |r| <= ln 2 / 2; e^r by its
 * Taylor polynomial of degree 7 (the remainder, 0.3466^8 / 8!, is 5e-9 relative), ln 2 in two parts
 * so that r keeps its bits. */
static inline float cpu_exp(float x) {
    float in = x < -87.3f ? -87.3f : x > 88.f ? 88.f : x;
    float n = __builtin_rintf((in >= -87.3f ? in : -87.3f) * 1.44269504f); /* a number for NaN */
    float r = in - n * 0.693359375f + n * 2.12194440e-4f;
    float e = 1.f / 5040;
    e = e * r + 1.f / 720;
    e = e * r + 1.f / 120;
    e = e * r + 1.f / 24;
    e = e * r + 1.f / 6;
    e = e * r + 0.5f;
    e = e * r + 1;
    e = e * r + 1;
    int32_t bits = ((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return x < -87.3f ? 0 : e * scale;
}
#endif
