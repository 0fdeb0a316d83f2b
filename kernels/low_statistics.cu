/* Tiles of 128 x 128 go to blocks of threads in turn. A warp has 16 rows of a tile, a thread four
 * columns of them; which values a thread adds up, and in which order, depends on the sizes alone.
 * Each block leaves its sums in scratch, and one more adds those. */
#include "low_statistics.h"
#include "fp8.cuh"
#include "scratch.h"
#include "sum.cuh"
#include "swiglu.cuh"
#include "vector.cuh"

namespace {

enum { SIDE = 128, THREADS = 256, WARPS = THREADS / 32, ROWS = SIDE / WARPS, COLS = SIDE / 32 };
static_assert(COLS == 4, "of a thread");

__device__ __forceinline__ void four(float (&v)[COLS], const bf16 *x) {
    unpack(v, load<COLS>(x));
}

/* Where values come from: four of them at a row and a column. base: the first row, or NULL. */
struct as_it_lies {
    const bf16 *x;
    const int32_t *base;
    size_t cols;
    __device__ __forceinline__ void get(float (&v)[COLS], size_t row, size_t col) const {
        if (base) row += *base;
        four(v, x + row * cols + col);
    }
};

struct kept_z {
    const bf16 *z;
    const int32_t *base;
    size_t F;
    __device__ __forceinline__ void get(float (&gate)[COLS], float (&up)[COLS], size_t row,
                                        size_t col) const {
        if (base) row += *base;
        four(gate, z + row * 2 * F + col), four(up, z + row * 2 * F + F + col);
    }
};

struct made_h {
    kept_z z;
    const float *p;
    __device__ __forceinline__ void get(float (&v)[COLS], size_t row, size_t col) const {
        float gate[COLS], up[COLS];
        z.get(gate, up, row, col);
#pragma unroll
        for (int j = 0; j < COLS; j++) v[j] = swiglu(gate[j], up[j], p[row]);
    }
};

struct made_dz {
    kept_z z;
    const float *p;
    const bf16 *dh;
    __device__ __forceinline__ void get(float (&v)[COLS], size_t row, size_t col) const {
        const bool of_up = col >= z.F;
        const size_t at = of_up ? col - z.F : col;
        float gate[COLS], up[COLS], d[COLS];
        z.get(gate, up, row, at);
        four(d, dh + row * z.F + at);
#pragma unroll
        for (int j = 0; j < COLS; j++) {
            const swiglu_gradient g = swiglu_back(gate[j], up[j], p[row], d[j]);
            v[j] = __bfloat162float(__float2bfloat16_rn(of_up ? g.dup : g.dgate));
        }
    }
};

/* What a thread has added up; the largest and the least of what there was. */
struct tally {
    uint32_t values = 0, nonfinite = 0, underflows = 0, largest = 0;
    double error2 = 0, squares = 0;
    float amax = 0, scale = 0, least = INFINITY;

    /* Of a block whose largest magnitude is `most`. */
    __device__ __forceinline__ void add(const float (&v)[COLS], uint32_t most) {
        uint32_t n = 0;
#pragma unroll
        for (int j = 0; j < COLS; j++) n += magnitude(v[j]) != 0;
        values += n;
        if (most >= 0x7f800000u) nonfinite += n;
        if (most == 0 || most >= 0x7f800000u) return;
        const fp8_scale s = fp8_scale_of(most);
        amax = fmaxf(amax, __uint_as_float(most));
        scale = fmaxf(scale, s.scale), least = fminf(least, s.scale);
#pragma unroll
        for (int j = 0; j < COLS; j += 2) {
            const uint32_t codes = fp8_pair(v[j] * s.inverse, v[j + 1] * s.inverse);
            float y[2];
            fp8_values(y, codes);
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const double x = v[j + k], error = x - static_cast<double>(y[k] * s.scale);
                underflows += x != 0 && y[k] * s.scale == 0;
                largest += (codes >> 8 * k & 0x7f) == 0x7e;
                error2 += error * error, squares += x * x;
            }
        }
    }

    /* Those of the block of threads, from thread 0. */
    __device__ __forceinline__ void leave(double *part) const {
        const double sums[LOW_AMAX] = {block_sum<THREADS>(static_cast<double>(values)),
                                       block_sum<THREADS>(static_cast<double>(nonfinite)),
                                       block_sum<THREADS>(static_cast<double>(underflows)),
                                       block_sum<THREADS>(static_cast<double>(largest)),
                                       block_sum<THREADS>(error2),
                                       block_sum<THREADS>(squares)};
        const double a = block_max<THREADS>(amax), s = block_max<THREADS>(scale),
                     l = -block_max<THREADS>(-least);
        if (threadIdx.x > 0) return;
        for (int i = 0; i < LOW_AMAX; i++) part[i] = sums[i];
        part[LOW_AMAX] = a, part[LOW_SCALE] = s, part[LOW_INVERSE] = s > 0 ? 1 / l : 0;
    }
};

__device__ __forceinline__ uint32_t largest_of_warp(uint32_t most) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) most = max(most, __shfl_xor_sync(~0u, most, step));
    return most;
}

__device__ __forceinline__ uint32_t largest_of_block(uint32_t most) {
    __shared__ uint32_t of_warp[WARPS];
    most = largest_of_warp(most);
    __syncthreads(); /* who read the last ones is done */
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = most;
    __syncthreads();
    return largest_of_warp(of_warp[threadIdx.x % WARPS]);
}

/* SQUARE: blocks are tiles, else rows of them. last: rows there are, on the device; NULL: `rows`.
 */
template <class SOURCE, bool SQUARE>
__global__ void __launch_bounds__(THREADS)
    add_up(double *parts, const SOURCE source, const int32_t *last, int rows, int cols) {
    const int end = last ? *last : rows, wide = cols / SIDE, tiles = (end + SIDE - 1) / SIDE * wide,
              row = threadIdx.x / 32 * ROWS, col = threadIdx.x % 32 * COLS;
    tally t;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int first = tile / wide * SIDE + row, at = tile % wide * SIDE + col;
        float v[ROWS][COLS];
        uint32_t most[ROWS], all = 0;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < COLS; j++) v[i][j] = 0;
            if (first + i < end) source.get(v[i], first + i, at);
            most[i] = 0;
#pragma unroll
            for (int j = 0; j < COLS; j++) most[i] = max(most[i], magnitude(v[i][j]));
            all = max(all, most[i]);
        }
        if (SQUARE) all = largest_of_block(all);
#pragma unroll
        for (int i = 0; i < ROWS; i++) t.add(v[i], SQUARE ? all : largest_of_warp(most[i]));
    }
    t.leave(parts + static_cast<size_t>(blockIdx.x) * N_LOW_SUMS);
}

/* A warp a sum. */
__global__ void __launch_bounds__(32 * N_LOW_SUMS) add_parts(double *sums, const double *parts) {
    const int which = threadIdx.x / 32;
    double x = 0;
    for (int i = threadIdx.x % 32; i < LOW_BLOCKS; i += 32) {
        const double part = parts[static_cast<size_t>(i) * N_LOW_SUMS + which];
        x = which < LOW_AMAX ? x + part : fmax(x, part);
    }
    if (which < LOW_AMAX) x = warp_sum(x);
    for (int step = 1; which >= LOW_AMAX && step < 32; step *= 2)
        x = fmax(x, __shfl_xor_sync(~0u, x, step));
    if (threadIdx.x % 32 == 0)
        sums[which] = which < LOW_AMAX ? sums[which] + x : fmax(sums[which], x);
}

template <bool SQUARE = false, class SOURCE>
void statistics(double *sums, const SOURCE &source, const int32_t *last, int rows, int cols,
                void *scratch, cudaStream_t stream) {
    double *const parts = static_cast<double *>(scratch);
    assert(cols % SIDE == 0 && rows >= 0);
    if (rows == 0) return;
    add_up<SOURCE, SQUARE><<<LOW_BLOCKS, THREADS, 0, stream>>>(parts, source, last, rows, cols);
    check(cudaGetLastError());
    add_parts<<<1, 32 * N_LOW_SUMS, 0, stream>>>(sums, parts);
    check(cudaGetLastError());
}

kept_z z_of(const void *z, const struct grouped_rows &r, int F) {
    assert(r.offsets && aligned16(z) && F % SIDE == 0);
    return {static_cast<const bf16 *>(z), r.z.base, static_cast<size_t>(F)};
}

} // namespace

void low_statistics_dense(double *sums, const void *x, int rows, int cols, void *scratch,
                          cudaStream_t stream) {
    const as_it_lies source = {static_cast<const bf16 *>(x), nullptr, static_cast<size_t>(cols)};
    assert(aligned16(x));
    statistics(sums, source, nullptr, rows, cols, scratch, stream);
}

void low_statistics_rows(double *sums, const void *x, struct grouped_rows r, int cols,
                         void *scratch, cudaStream_t stream) {
    const as_it_lies source = {static_cast<const bf16 *>(x), r.x.base, static_cast<size_t>(cols)};
    assert(r.offsets && aligned16(x));
    statistics(sums, source, r.offsets + r.E, r.rows, cols, scratch, stream);
}

void low_statistics_weights(double *sums, const void *w, int rows, int cols, void *scratch,
                            cudaStream_t stream) {
    const as_it_lies source = {static_cast<const bf16 *>(w), nullptr, static_cast<size_t>(cols)};
    assert(rows % SIDE == 0 && aligned16(w));
    statistics</*SQUARE=*/true>(sums, source, nullptr, rows, cols, scratch, stream);
}

void low_statistics_h(double *sums, const void *z, const float *p, struct grouped_rows r, int F,
                      void *scratch, cudaStream_t stream) {
    const made_h source = {z_of(z, r, F), p};
    statistics(sums, source, r.offsets + r.E, r.rows, F, scratch, stream);
}

void low_statistics_dz(double *sums, const void *dh, const void *z, const float *p,
                       struct grouped_rows r, int F, void *scratch, cudaStream_t stream) {
    const made_dz source = {z_of(z, r, F), p, static_cast<const bf16 *>(dh)};
    assert(aligned16(dh));
    statistics(sums, source, r.offsets + r.E, r.rows, 2 * F, scratch, stream);
}
