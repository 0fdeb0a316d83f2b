/* What the forward and the backward pass of flash.h share: who sees whom, tiles in shared
 * memory, and a warp's products of them. */
#ifndef REGULON_KERNELS_FLASH_CUH
#define REGULON_KERNELS_FLASH_CUH
#include "flash.h"
#include "mma.cuh"
#include "vector.cuh"
#include <cmath>

struct attention_problem {
    const int32_t *begin, *end;
    int N, H, G, K, window;
    float scale;
};

static inline attention_problem attention_problem_of(const int32_t *begin, const int32_t *end,
                                                     int N, struct flash_sizes s) {
    assert(s.G > 0 && s.H % s.G == 0 && s.K > 0 && s.K <= 256 && s.K % 8 == 0 && s.window >= 0);
    return {begin, end, N, s.H, s.G, s.K, s.window, 1 / sqrtf((float)s.K)};
}

/* flash_plain.cu: FP32; terms: below */
void flash_plain_forward(float *out, float *lse, const float *qkv, attention_problem p,
                         cudaStream_t stream);
void flash_plain_backward(float *dqkv, const float *dout, const float2 *terms, const float *qkv,
                          attention_problem p, cudaStream_t stream);

/* The backward pass's terms[H, padded]: x = lse log2 e, y = D of a query, zero from query N on, so
 * that tiles of at most FLASH_ROWS queries read them without looking for the end. */
static __host__ __device__ inline int attention_padded(int N) {
    return ceil_div(N, FLASH_ROWS) * FLASH_ROWS;
}

/* Query i sees the keys [first_key(i), i]; key j is seen by the queries [j, past_query(j)). As i
 * and j grow neither falls: documents are in order, so the first and the last row of a tile bound
 * what its other rows see. */
static __device__ __forceinline__ int first_key(const attention_problem &p, int i) {
    int first = p.begin[i];
    return p.window && i - p.window + 1 > first ? i - p.window + 1 : first;
}

static __device__ __forceinline__ int past_query(const attention_problem &p, int j) {
    int past = p.end[j];
    return p.window && p.window < past - j ? j + p.window : past;
}

/* This thread's number, or its place in its warp, as if it were news: addresses made of it are made
 * again at each use. Kept from one tile to the next they cost the kernels spills (nvcc 13.0). */
static __device__ __forceinline__ int thread_here() {
    int x = (int)threadIdx.x;
    asm volatile("" : "+r"(x));
    return x;
}

static __device__ __forceinline__ int lane_here() {
    return thread_here() % 32;
}

static constexpr float LOG2_E = 1.4426950408889634f;

/* A tile is BF16 [rows, W] in shared memory, W 64, 128 or 256; the 16-byte chunk c of row r lies at
 * chunk c ^ (r & 7), so that the eight rows of an 8x8 matrix lie in different banks. */
template <int W> static __device__ __forceinline__ uint32_t tile_place(int row, int chunk) {
    return (uint32_t)(row * W * 2 + ((chunk ^ (row & 7)) << 4));
}

/* tile[ROWS, W] = x[ROWS, K] by all THREADS threads of the block; rows from `rows` on and columns
 * from K on become zero. */
template <int W, int ROWS, int THREADS>
static __device__ __forceinline__ void tile_load(uint32_t tile, const bf16 *x, int stride, int rows,
                                                 int K) {
    constexpr int CHUNKS = W / 8, STEP = THREADS / CHUNKS;
    static_assert(THREADS % CHUNKS == 0 && ROWS % STEP == 0, "each thread copies as many chunks");
    const int thread = thread_here(), chunk = thread % CHUNKS, first = thread / CHUNKS;
    const bool inside = chunk * 8 < K;
    const bf16 *from = x + first * stride + chunk * 8;
    const int step = STEP * stride;
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP, from += step) {
        const int row = first + i;
        const bool zero = !inside || row >= rows;
        copy16_async(tile + tile_place<W>(row, chunk), zero ? x : from, zero);
    }
}

/* s[16 TILES, COLUMNS] = a[16 TILES, W] b[COLUMNS, W]^T, of the warp's rows of tile a (from `row`
 * on) and all rows of tile b */
template <int W, int TILES, int COLUMNS>
static __device__ __forceinline__ void multiply_tiles(float (&s)[TILES][COLUMNS / 8][4], uint32_t a,
                                                      int row, uint32_t b) {
    const int lane = lane_here(), a_row = row + lane % 16, a_chunk = lane / 16,
              b_row = lane % 8 + lane / 16 * 8, b_chunk = lane / 8 % 2;
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[m][n][e] = 0;
#pragma unroll 4
    for (int k = 0; k < W / 16; k++) {
        uint32_t x[TILES][4];
#pragma unroll
        for (int m = 0; m < TILES; m++)
            load_matrices(x[m], a + tile_place<W>(a_row + 16 * m, a_chunk + 2 * k));
#pragma unroll
        for (int n = 0; n < COLUMNS / 16; n++) {
            uint32_t y[4]; /* 8 columns of the product in y[0], y[1], 8 in y[2], y[3] */
            load_matrices(y, b + tile_place<W>(b_row + 16 * n, b_chunk + 2 * k));
#pragma unroll
            for (int m = 0; m < TILES; m++) {
                multiply_add(s[m][2 * n], x[m], y[0], y[1]);
                multiply_add(s[m][2 * n + 1], x[m], y[2], y[3]);
            }
        }
    }
}

/* Scores [16 TILES, KEYS] of the queries from `row` on and the keys from k0 on: -inf where a query
 * does not see a key. */
template <int TILES, int KEYS>
static __device__ __forceinline__ void hide_keys(float (&s)[TILES][KEYS / 8][4],
                                                 const attention_problem &p, int row, int k0) {
    const int lane = lane_here();
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int query = row + 16 * m + 8 * i + lane / 4,
                      first = query < p.N ? first_key(p, query) : 0;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int key = k0 + 8 * n + 2 * (lane % 4) + e;
                    if (key > query || key < first) s[m][n][2 * i + e] = -INFINITY;
                }
        }
}

/* An accumulator [16 TILES, COLUMNS] as the left operand of the next product: the same lanes hold
 * the same places. */
template <int TILES, int COLUMNS>
static __device__ __forceinline__ void pack_tiles(uint32_t (&x)[TILES][COLUMNS / 16][4],
                                                  const float (&s)[TILES][COLUMNS / 8][4]) {
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int k = 0; k < COLUMNS / 16; k++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[m][k][e] = pack_pair(s[m][2 * k + e / 2][2 * (e % 2)],
                                       s[m][2 * k + e / 2][2 * (e % 2) + 1]);
}

/* sum[16 TILES, COLUMNS] += x[16 TILES, DEPTH] b[DEPTH, COLUMNS], the columns of tile b from
 * `column` on */
template <int W, int TILES, int DEPTH, int COLUMNS>
static __device__ __forceinline__ void multiply_add_tile(float (&sum)[TILES][COLUMNS / 8][4],
                                                         const uint32_t (&x)[TILES][DEPTH / 16][4],
                                                         uint32_t b, int column) {
    const int lane = lane_here(), b_row = lane % 16, b_chunk = lane / 16 + column / 8;
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++)
#pragma unroll
        for (int n = 0; n < COLUMNS / 16; n++) {
            uint32_t y[4];
            load_matrices_transposed(y, b + tile_place<W>(b_row + 16 * k, b_chunk + 2 * n));
#pragma unroll
            for (int m = 0; m < TILES; m++) {
                multiply_add(sum[m][2 * n], x[m][k], y[0], y[1]);
                multiply_add(sum[m][2 * n + 1], x[m][k], y[2], y[3]);
            }
        }
}

/* x[rows, columns] = factor sum[16 TILES, COLUMNS], by way of `tile`: 16 TILES rows of W in shared
 * memory that only this warp uses (from a row that is a multiple of 8 on). */
template <int W, int TILES, int COLUMNS>
static __device__ __forceinline__ void store_tile(bf16 *x, int stride, int rows, int columns,
                                                  const float (&sum)[TILES][COLUMNS / 8][4],
                                                  float factor, unsigned char *tile) {
    constexpr int CHUNKS = COLUMNS / 8;
    const int lane = lane_here();
    __syncwarp();
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int n = 0; n < CHUNKS; n++)
#pragma unroll
            for (int e = 0; e < 4; e += 2) {
                const int row = 16 * m + 4 * e + lane / 4;
                *reinterpret_cast<uint32_t *>(tile + tile_place<W>(row, n) + 4 * (lane % 4)) =
                    pack_pair(factor * sum[m][n][e], factor * sum[m][n][e + 1]);
            }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16 * TILES * CHUNKS / 32; i++) {
        const int row = (lane + 32 * i) / CHUNKS, chunk = (lane + 32 * i) % CHUNKS;
        if (row < rows && chunk * 8 < columns)
            *reinterpret_cast<uint4 *>(x + row * stride + chunk * 8) =
                *reinterpret_cast<const uint4 *>(tile + tile_place<W>(row, chunk));
    }
}

/* Launches a kernel that takes `shared` bytes of dynamic shared memory. */
template <typename... Parameters>
static void launch(void (*kernel)(Parameters...), int blocks, int threads, int shared,
                   cudaStream_t stream, Parameters... arguments) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    kernel<<<(unsigned)blocks, (unsigned)threads, (size_t)shared, stream>>>(arguments...);
    check(cudaGetLastError());
}
#endif
