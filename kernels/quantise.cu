/* A block of threads takes 128 x 128 elements: it reads them once, and writes them by rows and
 * transposed. A thread has 4 rows of 8 columns, as BF16, so that two blocks fit on a
 * multiprocessor; largest magnitudes go through shuffles along rows and through shared memory down
 * columns. */
#include "quantise.h"
#include "fp8.cuh"
#include "parts.cuh"
#include "swiglu.cuh"
#include "vector.cuh"
#include <climits>

namespace {

enum { SIDE = 128, THREADS = 512, ROWS = 4, COLS = 8, LANES = SIDE / COLS, WARPS = THREADS / 32 };
static_assert(ROWS == 4 && COLS == 8, "what a thread holds is written out");

struct __align__(16) shared {
    uint32_t most[WARPS][SIDE / 2]; /* of two columns, among the rows of a warp */
    float inverse[SIDE];
    uint32_t codes[SIDE][SIDE / 4]; /* transposed; see word_of */
};

/* What a thread holds: 4 rows of 8. */
struct piece {
    uint4 row[ROWS];
};

struct place {
    int lane, group; /* columns 8 lane, rows 4 group from the tile's corner on */
    int row, col;    /* of the tile */
    __device__ place(int row, int col)
        : lane(threadIdx.x % LANES), group(threadIdx.x / LANES), row(row), col(col) {}
    __device__ int first_row() const { return row + ROWS * group; }
    __device__ int first_col() const { return col + COLS * lane; }
};

__device__ __forceinline__ void values(float (&v)[COLS], uint4 row) {
    unpack_pair(v, row.x), unpack_pair(v + 2, row.y);
    unpack_pair(v + 4, row.z), unpack_pair(v + 6, row.w);
}

/* Magnitudes of two BF16 numbers as bits: a NaN is above all, and stays. */
__device__ __forceinline__ uint32_t magnitudes(uint32_t pair) {
    return pair & 0x7fff7fffu;
}

__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    return __vmaxs2(a, b);
}

__device__ __forceinline__ uint32_t largest(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return larger(__vimax3_s16x2(magnitudes(a), magnitudes(b), magnitudes(c)), magnitudes(d));
}

/* The lower or the upper half as FP32 has it. */
__device__ __forceinline__ uint32_t half_of(uint32_t pair, int upper) {
    return upper ? pair & 0xffff0000u : pair << 16;
}

__device__ __forceinline__ const uint4 *row_of(const bf16 *x, const place &at, int i, size_t ld) {
    return reinterpret_cast<const uint4 *>(x + (at.first_row() + i) * ld + at.first_col());
}

/* Rows from `end` on are zero. */
__device__ __forceinline__ piece read(const bf16 *x, const place &at, size_t ld,
                                      int end = INT_MAX) {
    piece p;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        p.row[i] = at.first_row() + i < end ? *row_of(x, at, i, ld) : uint4{0, 0, 0, 0};
    return p;
}

__device__ __forceinline__ void write_row(uint8_t *codes, const place &at, int i, size_t ld,
                                          const float (&v)[COLS], float inverse) {
    uint2 eight = {fp8_four(v[0] * inverse, v[1] * inverse, v[2] * inverse, v[3] * inverse),
                   fp8_four(v[4] * inverse, v[5] * inverse, v[6] * inverse, v[7] * inverse)};
    *reinterpret_cast<uint2 *>(codes + (at.first_row() + i) * ld + at.first_col()) = eight;
}

/* By rows, a scale for each row of the tile. */
__device__ __forceinline__ void write_rows(struct fp8_matrix to, const piece &p, const place &at,
                                           int rows, size_t ld) {
    uint32_t two[ROWS / 2]; /* rows in a word */
#pragma unroll
    for (int k = 0; k < ROWS / 2; k++) {
        const uint4 a = p.row[2 * k], b = p.row[2 * k + 1];
        const uint32_t first = largest(a.x, a.y, a.z, a.w), second = largest(b.x, b.y, b.z, b.w);
        two[k] = larger(__byte_perm(first, second, 0x5410), __byte_perm(first, second, 0x7632));
#pragma unroll
        for (int step = 1; step < LANES; step *= 2)
            two[k] = larger(two[k], __shfl_xor_sync(~0u, two[k], step));
    }
    /* every lane makes the scale of one row */
    const int mine = at.lane % ROWS;
    const fp8_scale s = fp8_scale_of(half_of(mine < 2 ? two[0] : two[1], mine % 2));
    if (at.lane < ROWS)
        to.scales[static_cast<size_t>(at.col / SIDE) * rows + at.first_row() + mine] = s.scale;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float v[COLS];
        values(v, p.row[i]);
        write_row(to.codes, at, i, ld, v, __shfl_sync(~0u, s.inverse, i, ROWS));
    }
}

/* inverse[] of the tile's columns, or of all of it; scales go to scales[0 .. 127], or [0]. */
__device__ __forceinline__ void scale_columns(shared &s, const piece &p, const place &at,
                                              int square, float *scales) {
    const uint4 *r = p.row;
    uint4 most = {largest(r[0].x, r[1].x, r[2].x, r[3].x), largest(r[0].y, r[1].y, r[2].y, r[3].y),
                  largest(r[0].z, r[1].z, r[2].z, r[3].z), largest(r[0].w, r[1].w, r[2].w, r[3].w)};
    most.x = larger(most.x, __shfl_xor_sync(~0u, most.x, LANES));
    most.y = larger(most.y, __shfl_xor_sync(~0u, most.y, LANES));
    most.z = larger(most.z, __shfl_xor_sync(~0u, most.z, LANES));
    most.w = larger(most.w, __shfl_xor_sync(~0u, most.w, LANES));
    __syncthreads(); /* who read the last ones is done */
    if (threadIdx.x % 32 < LANES)
        *reinterpret_cast<uint4 *>(&s.most[threadIdx.x / 32][at.lane * COLS / 2]) = most;
    __syncthreads();
    if (threadIdx.x < SIDE) {
        uint32_t all = 0;
        for (int w = 0; w < WARPS; w++) all = larger(all, s.most[w][threadIdx.x / 2]);
        all = half_of(all, threadIdx.x % 2);
        if (square) { /* of this warp's columns, and then of all */
            for (int step = 1; step < 32; step *= 2)
                all = max(all, __shfl_xor_sync(~0u, all, step));
            if (threadIdx.x % 32 == 0) s.inverse[threadIdx.x] = __uint_as_float(all);
            asm volatile("bar.sync 1, 128;" ::: "memory");
            all = 0;
            for (int w = 0; w < SIDE / 32; w++) all = max(all, __float_as_uint(s.inverse[32 * w]));
            asm volatile("bar.sync 1, 128;" ::: "memory");
        }
        const fp8_scale scale = fp8_scale_of(all);
        s.inverse[threadIdx.x] = scale.inverse;
        if (!square || threadIdx.x == 0) scales[threadIdx.x] = scale.scale;
    }
    __syncthreads();
}

/* Where word `word`, four rows, of a column lies in its line, so that neither the threads that
 * write words nor those that read four at a time meet in a bank. */
__device__ __forceinline__ int word_of(int col, int word) {
    return word ^ 2 * (col / COLS % LANES);
}

/* Transposed, with the scales of scale_columns: codes[cols, rows]. */
__device__ __forceinline__ void write_cols(shared &s, uint8_t *codes, const piece &p,
                                           const place &at, size_t rows) {
    float v[ROWS][COLS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) values(v[i], p.row[i]);
#pragma unroll
    for (int j = 0; j < COLS; j++) {
        const int col = at.lane * COLS + j;
        const float inverse = s.inverse[col];
        s.codes[col][word_of(col, at.group)] =
            fp8_four(v[0][j] * inverse, v[1][j] * inverse, v[2][j] * inverse, v[3][j] * inverse);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SIDE * SIDE / 16 / THREADS; i++) {
        const int q = threadIdx.x + i * THREADS, col = q / (SIDE / 16), part = q % (SIDE / 16);
        const int first = word_of(col, part * 4); /* its neighbour may come before it */
        const uint4 four = *reinterpret_cast<const uint4 *>(&s.codes[col][first & ~3]);
        *reinterpret_cast<uint4 *>(codes + (at.col + col) * rows + at.row + part * 16) =
            first & 2 ? uint4{four.z, four.w, four.x, four.y} : four;
    }
}

__global__ void __launch_bounds__(THREADS, 2)
    of_rows(struct fp8_matrix by_row, struct fp8_matrix by_col, int square, const bf16 *x,
            const int32_t *base, const int32_t *last, int there, int rows, int cols) {
    __shared__ shared s;
    const place at(blockIdx.y * SIDE, blockIdx.x * SIDE);
    if (last && at.row >= *last) return;
    if (base) x += static_cast<size_t>(*base) * cols;
    const piece p = read(x, at, cols, there);
    if (by_row.codes) write_rows(by_row, p, at, rows, cols);
    if (!by_col.codes) return;
    scale_columns(s, p, at, square,
                  by_col.scales +
                      (square ? static_cast<size_t>(blockIdx.y) * (cols / SIDE) + blockIdx.x
                              : static_cast<size_t>(blockIdx.y) * cols + at.col));
    write_cols(s, by_col.codes, p, at, rows);
}

__global__ void __launch_bounds__(THREADS, 2)
    of_weights(struct fp8_matrix as_is, struct fp8_matrix transposed, const bf16 *w, int N, int K) {
    __shared__ shared s;
    __shared__ float scale;
    const size_t area = static_cast<size_t>(N) * K, e = blockIdx.z, n = blockIdx.y, k = blockIdx.x;
    const place at(blockIdx.y * SIDE, blockIdx.x * SIDE);
    const piece p = read(w + e * area, at, K);
    scale_columns(s, p, at, /*square=*/1, &scale);
    if (as_is.codes) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float v[COLS];
            values(v, p.row[i]);
            write_row(as_is.codes + e * area, at, i, K, v, s.inverse[0]);
        }
        if (threadIdx.x == 0) as_is.scales[(e * gridDim.y + n) * gridDim.x + k] = scale;
    }
    if (!transposed.codes) return;
    if (threadIdx.x == 0) transposed.scales[(e * gridDim.x + k) * gridDim.y + n] = scale;
    write_cols(s, transposed.codes + e * area, p, at, N);
}

/* Two columns: their gradients from z; dh becomes h. Returns their part of dp. */
__device__ __forceinline__ float back_pair(uint32_t &dgate, uint32_t &dup, uint32_t &dh,
                                           const float (&g)[2], const float (&u)[2], float p) {
    float d[2];
    unpack_pair(d, dh);
    const swiglu_gradient l = swiglu_back(g[0], u[0], p, d[0]),
                          r = swiglu_back(g[1], u[1], p, d[1]);
    dgate = pack_pair(l.dgate, r.dgate), dup = pack_pair(l.dup, r.dup), dh = pack_pair(l.h, r.h);
    return l.dp + r.dp;
}

/* z as it was kept: of a row's eight columns as many words as it has. */
struct z_in_bf16 {
    const bf16 *z;
    uint4 row[ROWS];
    __device__ __forceinline__ z_in_bf16(const fp8_z &kept, size_t first, int, const place &at,
                                         size_t ld)
        : z(static_cast<const bf16 *>(kept.bf16) + first * ld) {
        const piece p = read(z, at, ld);
#pragma unroll
        for (int i = 0; i < ROWS; i++) row[i] = p.row[i];
    }
    __device__ __forceinline__ void pair(float (&v)[2], int i, int k) const {
        unpack_pair(v, k == 0 ? row[i].x : k == 1 ? row[i].y : k == 2 ? row[i].z : row[i].w);
    }
};

struct z_in_fp8 {
    uint2 row[ROWS];
    float scale[ROWS];
    __device__ __forceinline__ z_in_fp8(const fp8_z &kept, size_t first, int rows, const place &at,
                                        size_t ld) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const size_t r = first + at.first_row() + i;
            row[i] = *reinterpret_cast<const uint2 *>(kept.low.codes + r * ld + at.first_col());
            scale[i] = kept.low.scales[static_cast<size_t>(at.col / SIDE) * rows + r];
        }
    }
    __device__ __forceinline__ void pair(float (&v)[2], int i, int k) const {
        fp8_values(v, (k < 2 ? row[i].x : row[i].y) >> k % 2 * 16);
        v[0] *= scale[i], v[1] *= scale[i];
    }
};

struct swiglu_results {
    struct fp8_matrix dz_by_row, dz_by_col, h_by_col;
    float *parts;
};

/* The gradient of up, and h, wait for their turn here: in registers they would spill. */
struct swiglu_shared {
    shared s;
    uint4 up[ROWS][THREADS], h[ROWS][THREADS];
};

/* z has z_rows rows. */
template <class KEPT>
__global__ void __launch_bounds__(THREADS, 2)
    of_swiglu(const swiglu_results out, const bf16 *dh, const fp8_z z, const int32_t *base,
              int z_rows, const float *p, const int32_t *last, int rows, int F) {
    extern __shared__ __align__(16) unsigned char memory[];
    swiglu_shared &all = *reinterpret_cast<swiglu_shared *>(memory);
    shared &s = all.s;
    const place at(blockIdx.y * SIDE, blockIdx.x * SIDE), up_at(at.row, at.col + F);
    const size_t width = 2 * static_cast<size_t>(F);
    if (at.row >= *last) return;
    const size_t first = base ? *base : 0;
    piece gate, other;
    {
        const piece d = read(dh, at, F);
        const KEPT g(z, first, z_rows, at, width), u(z, first, z_rows, up_at, width);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const float factor = p[at.first_row() + i];
            uint32_t dgate[4], dup[4], dd[4] = {d.row[i].x, d.row[i].y, d.row[i].z, d.row[i].w};
            float dot = 0;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float gs[2], us[2];
                g.pair(gs, i, k), u.pair(us, i, k);
                dot += back_pair(dgate[k], dup[k], dd[k], gs, us, factor);
            }
            gate.row[i] = {dgate[0], dgate[1], dgate[2], dgate[3]};
            all.up[i][threadIdx.x] = {dup[0], dup[1], dup[2], dup[3]};
            all.h[i][threadIdx.x] = {dd[0], dd[1], dd[2], dd[3]};
            dot = warp_sum(dot, LANES);
            if (at.lane == 0)
                out.parts[static_cast<size_t>(blockIdx.x) * rows + at.first_row() + i] = dot;
        }
    }
    float *const scales = out.dz_by_col.scales + static_cast<size_t>(blockIdx.y) * width;
    write_rows(out.dz_by_row, gate, at, rows, width);
    scale_columns(s, gate, at, /*square=*/0, scales + at.col);
    write_cols(s, out.dz_by_col.codes, gate, at, rows);
#pragma unroll
    for (int i = 0; i < ROWS; i++) other.row[i] = all.up[i][threadIdx.x];
    write_rows(out.dz_by_row, other, up_at, rows, width);
    scale_columns(s, other, at, /*square=*/0, scales + up_at.col);
    write_cols(s, out.dz_by_col.codes, other, up_at, rows);
#pragma unroll
    for (int i = 0; i < ROWS; i++) other.row[i] = all.h[i][threadIdx.x];
    scale_columns(s, other, at, /*square=*/1,
                  out.h_by_col.scales + static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x);
    write_cols(s, out.h_by_col.codes, other, at, rows);
}

dim3 tiles(int rows, int cols, int n = 1) {
    assert(rows >= 0 && cols % SIDE == 0);
    return dim3(cols / SIDE, ceil_div(rows, +SIDE), n);
}

} // namespace

void quantise_rows(struct fp8_matrix by_row, struct fp8_matrix by_col, int square, const void *x,
                   struct grouped_rows r, int cols, cudaStream_t stream) {
    assert(r.offsets && r.rows % SIDE == 0 && aligned16(x));
    if (r.rows == 0) return;
    of_rows<<<tiles(r.rows, cols), THREADS, 0, stream>>>(by_row, by_col, square,
                                                         static_cast<const bf16 *>(x), r.x.base,
                                                         r.offsets + r.E, r.rows, r.rows, cols);
    check(cudaGetLastError());
}

void quantise_dense(struct fp8_matrix by_row, struct fp8_matrix by_col, int square, const void *x,
                    int N, int cols, cudaStream_t stream) {
    const int rows = ceil_div(N, +SIDE) * SIDE;
    assert(aligned16(x));
    if (N == 0) return;
    of_rows<<<tiles(rows, cols), THREADS, 0, stream>>>(
        by_row, by_col, square, static_cast<const bf16 *>(x), nullptr, nullptr, N, rows, cols);
    check(cudaGetLastError());
}

void quantise_weights(struct fp8_matrix as_is, struct fp8_matrix transposed, const void *w, int E,
                      int N, int K, cudaStream_t stream) {
    assert(N % SIDE == 0 && aligned16(w));
    of_weights<<<tiles(N, K, E), THREADS, 0, stream>>>(as_is, transposed,
                                                       static_cast<const bf16 *>(w), N, K);
    check(cudaGetLastError());
}

void quantise_swiglu(struct fp8_matrix dz_by_row, struct fp8_matrix dz_by_col,
                     struct fp8_matrix h_by_col, float *dp, void *parts, const void *dh,
                     struct fp8_z z, const float *p, struct grouped_rows r, int F,
                     cudaStream_t stream) {
    assert(r.offsets && r.rows % SIDE == 0 && aligned16(dh) && aligned16(z.bf16));
    if (r.rows == 0) return;
    const swiglu_results out = {dz_by_row, dz_by_col, h_by_col, static_cast<float *>(parts)};
    auto *kernel = z.bf16 ? of_swiglu<z_in_bf16> : of_swiglu<z_in_fp8>;
    const int bytes = sizeof(swiglu_shared);
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<tiles(r.rows, F), THREADS, bytes, stream>>>(out, static_cast<const bf16 *>(dh), z,
                                                         r.z.base, r.z.base ? r.z.rows : r.rows, p,
                                                         r.offsets + r.E, r.rows, F);
    check(cudaGetLastError());
    sum_parts(dp, out.parts, r, F / SIDE, stream);
}
