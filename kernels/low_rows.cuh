/* A row in eight bits (low_row.h) by a warp: 256 columns at a time, a lane has eight of them, 16
 * lanes a block. */
#ifndef REGULON_KERNELS_LOW_ROWS_CUH
#define REGULON_KERNELS_LOW_ROWS_CUH
#include "fp8.cuh"
#include "low_row.h"
#include "vector.cuh"

enum {
    LOW_LANE = 8,             /* columns */
    LOW_STEP = 32 * LOW_LANE, /* columns of a warp */
    LOW_STEPS = 4,            /* on their way at the same time */
    LOW_TURN = LOW_STEPS * LOW_STEP
};

/* Eight codes, and the scale of their block. */
struct low_piece {
    uint2 codes;
    float scale;
};

/* By the whole warp, zeros where its row has ended. */
static __device__ __forceinline__ low_piece low_round(const float (&f)[LOW_LANE]) {
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < LOW_LANE; k++) most = max(most, magnitude(f[k]));
    for (int step = 1; step < LOW_ROW_BLOCK / LOW_LANE; step *= 2)
        most = max(most, __shfl_xor_sync(~0u, most, step));
    const fp8_scale s = fp8_scale_of(most);
    const uint32_t low = fp8_four(f[0] * s.inverse, f[1] * s.inverse, f[2] * s.inverse,
                                  f[3] * s.inverse),
                   high = fp8_four(f[4] * s.inverse, f[5] * s.inverse, f[6] * s.inverse,
                                   f[7] * s.inverse);
    return {{low, high}, s.scale};
}

/* What they stand for, rounded to T. */
template <class T>
static __device__ __forceinline__ vec<T, LOW_LANE> low_values(const low_piece &p) {
    float f[LOW_LANE];
#pragma unroll
    for (int k = 0; k < LOW_LANE; k += 2) {
        float v[2];
        fp8_values(v, (k < 4 ? p.codes.x : p.codes.y) >> k % 4 * 8);
        f[k] = v[0] * p.scale, f[k + 1] = v[1] * p.scale;
    }
    return pack<T>(f);
}

/* The pieces of a turn of x[D], which begins at column `first`, rounded; by the whole warp. */
template <class T>
static __device__ __forceinline__ void low_turn(low_piece (&p)[LOW_STEPS], const T *x, int first,
                                                int D) {
    const int mine = first + static_cast<int>(threadIdx.x % 32) * LOW_LANE;
    vec<T, LOW_LANE> v[LOW_STEPS];
#pragma unroll
    for (int k = 0; k < LOW_STEPS; k++)
        if (mine + k * LOW_STEP < D) v[k] = load<LOW_LANE>(x + mine + k * LOW_STEP);
#pragma unroll
    for (int k = 0; k < LOW_STEPS; k++) {
        float f[LOW_LANE] = {};
        if (mine + k * LOW_STEP < D) unpack(f, v[k]);
        p[k] = low_round(f);
    }
}

/* The same of a row in eight bits. */
static __device__ __forceinline__ void low_turn(low_piece (&p)[LOW_STEPS], const char *row,
                                                int first, int D) {
    const int mine = first + static_cast<int>(threadIdx.x % 32) * LOW_LANE;
    const size_t codes = low_row_scales(D);
#pragma unroll
    for (int k = 0; k < LOW_STEPS; k++) {
        const int j = mine + k * LOW_STEP;
        if (j >= D) continue;
        p[k].codes = *reinterpret_cast<const uint2 *>(row + codes + j);
        p[k].scale = reinterpret_cast<const float *>(row)[j / LOW_ROW_BLOCK];
    }
}

/* A turn's pieces into row[D]. */
template <class T>
static __device__ __forceinline__ void low_store(T *row, const low_piece (&p)[LOW_STEPS], int first,
                                                 int D) {
    const int mine = first + static_cast<int>(threadIdx.x % 32) * LOW_LANE;
#pragma unroll
    for (int k = 0; k < LOW_STEPS; k++)
        if (mine + k * LOW_STEP < D) store(row + mine + k * LOW_STEP, low_values<T>(p[k]));
}

/* And as they are into a row in eight bits, by the whole warp: the scales in one piece. */
static __device__ __forceinline__ void low_store(char *row, const low_piece (&p)[LOW_STEPS],
                                                 int first, int D) {
    enum { EACH = LOW_STEP / LOW_ROW_BLOCK };
    const int lane = threadIdx.x % 32, mine = first + lane * LOW_LANE;
    const size_t codes = low_row_scales(D);
    float scale = 0;
#pragma unroll
    for (int k = 0; k < LOW_STEPS; k++) {
        const float of_step = __shfl_sync(~0u, p[k].scale, lane % EACH * (32 / EACH));
        if (lane / EACH == k) scale = of_step;
        if (mine + k * LOW_STEP < D)
            *reinterpret_cast<uint2 *>(row + codes + mine + k * LOW_STEP) = p[k].codes;
    }
    if (lane < EACH * LOW_STEPS && first + lane * LOW_ROW_BLOCK < D)
        reinterpret_cast<float *>(row)[first / LOW_ROW_BLOCK + lane] = scale;
}
#endif
