/* Tiles of 128 x 128 go to blocks of threads in turn. A warp has 16 rows of a tile, a thread four
 * columns of them; which values a thread adds up, and in which order, depends on the sizes alone.
 * Each block leaves its sums in scratch, and one more adds those. */
#include "low_statistics.h"
#include "fp8.cuh"
#include "mxfp8.cuh"
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

struct z_in_bf16 {
    const bf16 *z;
    const int32_t *base;
    size_t F;
    z_in_bf16(const fp8_z &kept, const grouped_rows &r, int F)
        : z(static_cast<const bf16 *>(kept.bf16)), base(r.z.base), F(F) {}
    __device__ __forceinline__ void get(float (&gate)[COLS], float (&up)[COLS], size_t row,
                                        size_t col) const {
        if (base) row += *base;
        four(gate, z + row * 2 * F + col), four(up, z + row * 2 * F + F + col);
    }
};

struct z_in_fp8 {
    fp8_matrix z;
    const int32_t *base;
    size_t F, rows; /* rows: of scales */
    z_in_fp8(const fp8_z &kept, const grouped_rows &r, int F)
        : z(kept.low), base(r.z.base), F(F), rows(r.z.base ? r.z.rows : r.rows) {}
    __device__ __forceinline__ void half(float (&v)[COLS], size_t row, size_t col) const {
        const uint8_t *at = static_cast<const uint8_t *>(z.codes) + row * 2 * F + col;
        const uint32_t codes = *reinterpret_cast<const uint32_t *>(at);
        const float scale = z.scales[col / SIDE * rows + row];
#pragma unroll
        for (int j = 0; j < COLS; j += 2) {
            float pair[2];
            fp8_values(pair, codes >> 8 * j);
            v[j] = pair[0] * scale, v[j + 1] = pair[1] * scale;
        }
    }
    __device__ __forceinline__ void get(float (&gate)[COLS], float (&up)[COLS], size_t row,
                                        size_t col) const {
        if (base) row += *base;
        half(gate, row, col), half(up, row, F + col);
    }
};

template <class Z> struct made_h {
    Z z;
    const float *p;
    __device__ __forceinline__ void get(float (&v)[COLS], size_t row, size_t col) const {
        float gate[COLS], up[COLS];
        z.get(gate, up, row, col);
#pragma unroll
        for (int j = 0; j < COLS; j++) v[j] = swiglu(gate[j], up[j], p[row]);
    }
};

template <class Z> struct made_dz {
    Z z;
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
    template <bool MX> __device__ __forceinline__ void add(const float (&v)[COLS], uint32_t most) {
        uint32_t n = 0;
#pragma unroll
        for (int j = 0; j < COLS; j++) n += magnitude(v[j]) != 0;
        values += n;
        if (most >= 0x7f800000u) nonfinite += n;
        if (most == 0 || most >= 0x7f800000u) return;
        float to, from;
        if (MX) {
            const mxfp8_scale s = mxfp8_scale_of(__uint_as_float(most));
            to = s.inverse, from = s.scale;
        } else {
            const fp8_scale s = fp8_scale_of(most);
            to = s.inverse, from = s.scale;
        }
        amax = fmaxf(amax, __uint_as_float(most));
        scale = fmaxf(scale, from), least = fminf(least, from);
#pragma unroll
        for (int j = 0; j < COLS; j++) {
            const float code = e4m3(__fmul_rn(v[j], to)), y = __fmul_rn(code, from);
            const double x = v[j], error = x - static_cast<double>(y);
            underflows += v[j] != 0 && y == 0;
            largest += fabsf(code) == 448;
            error2 += error * error, squares += x * x;
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

__device__ __forceinline__ uint32_t largest_of(uint32_t most, int lanes) {
    for (int step = 1; step < lanes; step *= 2) most = max(most, __shfl_xor_sync(~0u, most, step));
    return most;
}

__device__ __forceinline__ uint32_t largest_of_block(uint32_t most) {
    __shared__ uint32_t of_warp[WARPS];
    most = largest_of(most, 32);
    __syncthreads(); /* who read the last ones is done */
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = most;
    __syncthreads();
    return largest_of(of_warp[threadIdx.x % WARPS], 32);
}

/* last: rows there are, on the device; NULL: `rows`. */
template <class SOURCE, low_blocks BLOCKS>
__global__ void __launch_bounds__(THREADS)
    add_up(double *parts, const SOURCE source, const int32_t *last, int rows, int cols) {
    const int end = last ? *last : rows, wide = ceil_div(cols, +SIDE),
              tiles = ceil_div(end, +SIDE) * wide, row = threadIdx.x / 32 * ROWS,
              col = threadIdx.x % 32 * COLS;
    tally t;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int first = tile / wide * SIDE + row, at = tile % wide * SIDE + col;
        float v[ROWS][COLS];
        uint32_t most[ROWS], all = 0;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < COLS; j++) v[i][j] = 0;
            if (first + i < end && at < cols) source.get(v[i], first + i, at);
            most[i] = 0;
#pragma unroll
            for (int j = 0; j < COLS; j++) most[i] = max(most[i], magnitude(v[i][j]));
            all = max(all, most[i]);
        }
        if (BLOCKS == LOW_BLOCK_SQUARE) all = largest_of_block(all);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int lanes = BLOCKS == LOW_BLOCK_MX ? 32 / COLS : 32;
            t.template add<BLOCKS == LOW_BLOCK_MX>(
                v[i], BLOCKS == LOW_BLOCK_SQUARE ? all : largest_of(most[i], lanes));
        }
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

template <low_blocks BLOCKS, class SOURCE>
void statistics(double *sums, const SOURCE &source, const int32_t *last, int rows, int cols,
                void *scratch, cudaStream_t stream) {
    double *const parts = static_cast<double *>(scratch);
    assert(rows >= 0 && cols % (BLOCKS == LOW_BLOCK_MX ? 32 : +SIDE) == 0);
    if (rows == 0) return;
    add_up<SOURCE, BLOCKS><<<LOW_BLOCKS, THREADS, 0, stream>>>(parts, source, last, rows, cols);
    check(cudaGetLastError());
    add_parts<<<1, 32 * N_LOW_SUMS, 0, stream>>>(sums, parts);
    check(cudaGetLastError());
}

template <class Z>
void of_dz(double *sums, const void *dh, const fp8_z &z, const float *p, const grouped_rows &r,
           int F, void *scratch, cudaStream_t stream) {
    const made_dz<Z> source = {Z(z, r, F), p, static_cast<const bf16 *>(dh)};
    statistics<LOW_BLOCK_LINE>(sums, source, r.offsets + r.E, r.rows, 2 * F, scratch, stream);
}

template <class Z>
void of_h(double *sums, const fp8_z &z, const float *p, const grouped_rows &r, int F, void *scratch,
          cudaStream_t stream) {
    const made_h<Z> source = {Z(z, r, F), p};
    statistics<LOW_BLOCK_LINE>(sums, source, r.offsets + r.E, r.rows, F, scratch, stream);
}

} // namespace

void low_statistics(double *sums, enum low_blocks blocks, const void *x, const int32_t *base,
                    const int32_t *last, int rows, int cols, void *scratch, cudaStream_t stream) {
    const as_it_lies source = {static_cast<const bf16 *>(x), base, static_cast<size_t>(cols)};
    assert(aligned16(x) && (blocks != LOW_BLOCK_SQUARE || rows % SIDE == 0));
    if (blocks == LOW_BLOCK_LINE)
        statistics<LOW_BLOCK_LINE>(sums, source, last, rows, cols, scratch, stream);
    else if (blocks == LOW_BLOCK_SQUARE)
        statistics<LOW_BLOCK_SQUARE>(sums, source, last, rows, cols, scratch, stream);
    else
        statistics<LOW_BLOCK_MX>(sums, source, last, rows, cols, scratch, stream);
}

void low_statistics_h(double *sums, struct fp8_z z, const float *p, struct grouped_rows r, int F,
                      void *scratch, cudaStream_t stream) {
    assert(r.offsets && F % SIDE == 0);
    (z.bf16 ? of_h<z_in_bf16> : of_h<z_in_fp8>)(sums, z, p, r, F, scratch, stream);
}

void low_statistics_dz(double *sums, const void *dh, struct fp8_z z, const float *p,
                       struct grouped_rows r, int F, void *scratch, cudaStream_t stream) {
    assert(r.offsets && F % SIDE == 0 && aligned16(dh));
    (z.bf16 ? of_dz<z_in_bf16> : of_dz<z_in_fp8>)(sums, dh, z, p, r, F, scratch, stream);
}
