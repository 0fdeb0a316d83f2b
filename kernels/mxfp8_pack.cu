/* A block of threads takes 128 x 128 values, which have one tile of scales in either direction: it
 * reads them once. For rows a thread has 32 values of a row, for columns 32 of a column, through
 * shared memory. Where a matrix ends there are zeros, whose scales are 0. */
#include "mxfp8_pack.h"
#include "mxfp8_block.cuh"
#include "vector.cuh"

namespace {

enum {
    SIDE = MXFP8_TILE_ROWS,
    BLOCK = MXFP8_BLOCK,
    BLOCKS = MXFP8_TILE_BLOCKS,
    THREADS = SIDE * BLOCKS,
    WORDS = BLOCK / 2 /* pairs of BF16 */
};
static_assert(+SIDE == +MXFP8_TILE_COLS, "a tile is square");

/* The matrix that a tile of rows belongs to. */
struct place {
    size_t row;   /* first of the tile, of all rows */
    size_t first; /* of the matrix's first tile of rows */
    int tile;     /* in the matrix */
    int end;      /* rows of the matrix from this tile on */
    size_t rows;  /* of the matrix, up to whole blocks */
    size_t start; /* its first row */
};

__device__ place place_of(const mxfp8_set &set, int tile) {
    place p;
    int rows = set.rows;
    if (set.offsets) {
        int e = 0;
        while (set.offsets[e + 1] <= tile * SIDE) e++;
        p.start = set.offsets[e];
        p.first = p.start / SIDE;
        rows = set.offsets[e + 1] - set.offsets[e];
    } else {
        const int tiles = static_cast<int>(mxfp8_tiles(rows)), e = tile / tiles;
        p.start = static_cast<size_t>(e) * rows;
        p.first = static_cast<size_t>(e) * tiles;
    }
    p.tile = tile - static_cast<int>(p.first);
    p.row = p.start + static_cast<size_t>(p.tile) * SIDE;
    p.end = rows - p.tile * SIDE;
    p.rows = mxfp8_whole(rows);
    return p;
}

__global__ void __launch_bounds__(THREADS)
    of_tiles(const mxfp8_matrix by_row, const mxfp8_matrix by_col, const bf16 *x,
             const mxfp8_set set, int cols) {
    __shared__ __align__(16) uint32_t tile[SIDE][SIDE / 2 + 4]; /* lines 16 bytes apart in banks */
    const place p = place_of(set, blockIdx.x);
    const int first_col = blockIdx.y * SIDE;
    const size_t tiles_a_row = mxfp8_tiles(cols);
    float v[BLOCK];
    {
        const int row = threadIdx.x / BLOCKS, block = threadIdx.x % BLOCKS,
                  col = first_col + block * BLOCK;
        const bool there = row < p.end && col < cols;
        const bf16 *from = x + (p.row + row) * cols + col;
#pragma unroll
        for (int i = 0; i < BLOCK / 8; i++) {
            const uint4 eight =
                there ? reinterpret_cast<const uint4 *>(from)[i] : uint4{0, 0, 0, 0};
            unpack_pair(v + 8 * i, eight.x), unpack_pair(v + 8 * i + 2, eight.y);
            unpack_pair(v + 8 * i + 4, eight.z), unpack_pair(v + 8 * i + 6, eight.w);
            *reinterpret_cast<uint4 *>(&tile[row][block * WORDS + 4 * i]) = eight;
        }
        if (by_row.codes) {
            const mxfp8_codes_of_block b = mxfp8_pack_block(v);
            const size_t at = (p.first + p.tile) * tiles_a_row + blockIdx.y;
            if (there) mxfp8_store_codes(by_row.codes + (p.row + row) * cols + col, b);
            by_row.scales[at * MXFP8_TILE_BYTES + mxfp8_scale_at(row, block, SIDE)] = b.scale;
        }
    }
    if (!by_col.codes) return;
    __syncthreads();
    const int col = threadIdx.x % SIDE, block = threadIdx.x / SIDE, row = block * BLOCK;
#pragma unroll
    for (int i = 0; i < BLOCK; i++)
        v[i] = __bfloat162float(reinterpret_cast<const bf16 *>(tile[row + i])[col]);
    const mxfp8_codes_of_block b = mxfp8_pack_block(v);
    const size_t wide = mxfp8_tiles(p.rows),
                 at = p.first * tiles_a_row + blockIdx.y * wide + p.tile;
    if (first_col + col < cols && row < p.end)
        mxfp8_store_codes(
            by_col.codes + p.start * cols + (first_col + col) * p.rows + p.tile * SIDE + row, b);
    by_col.scales[at * MXFP8_TILE_BYTES + mxfp8_scale_at(col, block, SIDE)] = b.scale;
}

} // namespace

void mxfp8_pack(struct mxfp8_matrix by_row, struct mxfp8_matrix by_col, const void *x,
                struct mxfp8_set set, int cols, cudaStream_t stream) {
    assert(cols % BLOCK == 0 && aligned16(x));
    assert(set.offsets ? set.rows % SIDE == 0 : set.n == 1 || set.rows % BLOCK == 0);
    if (set.rows == 0 || set.n == 0 || cols == 0) return;
    const size_t tiles = mxfp8_tiles(set.rows) * (set.offsets ? 1 : set.n);
    const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(mxfp8_tiles(cols)));
    of_tiles<<<grid, THREADS, 0, stream>>>(by_row, by_col, static_cast<const bf16 *>(x), set, cols);
    check(cudaGetLastError());
}
