/* Which tile of which expert a block works on, and when. See kernels/README.md.
 *
 * Work is numbered expert by expert; an item is what a cluster of two blocks does at a time, and
 * cluster c of C takes items c, c + C, ... The two blocks take two row tiles of one column tile and
 * share its columns' operand; the last row tile of an odd number goes two column tiles at a time,
 * which share the rows' operand. Of a last tile an expert may have only the first half of the rows:
 * it is multiplied whole, and that half stored. Within an
 * expert the items run in strips SUPER_ROWS pairs of row tiles high, all columns long, rows
 * fastest: those at work at any time form a patch of the result that is about square, whose
 * operands fit into the L2 cache. */
#ifndef REGULON_KERNELS_GROUPED_TILES_CUH
#define REGULON_KERNELS_GROUPED_TILES_CUH
#include "grouped_sizes.h"
#include "hopper.cuh"

namespace grouped_gemm {

/* The products, of grouped_gemm.h: FORWARD and UP are what is called fprop elsewhere, BACKWARD and
 * DOWN_BACKWARD dgrad, WEIGHTS wgrad. WEIGHTS sums over the rows of an expert, the others over a
 * side of its matrix, TILE_DEPTH at a step (k-step). */
enum product { FORWARD, UP, BACKWARD, DOWN_BACKWARD, WEIGHTS };

#ifndef GROUPED_STAGES
#define GROUPED_STAGES 4
#endif
enum {
    CLUSTER = 2,
    STAGES = GROUPED_STAGES,
    TILE_ROWS = 2 * GROUPED_ROWS,
    TILE_COLS = GROUPED_COLS,
    TILE_DEPTH = GROUPED_UNIT,
    CONSUMER_WARPS = 8,
    CONSUMERS = 32 * CONSUMER_WARPS,
    THREADS = CONSUMERS + 128,
    SUPER_ROWS = 8,
    A_BYTES = TILE_ROWS * TILE_DEPTH * 2,
    B_BYTES = TILE_COLS * TILE_DEPTH * 2,
    BOX_LINES = GROUPED_LINES,
    BOX_BYTES = BOX_LINES * 128, /* of a result on its way out */
    SHORT = 32,                  /* steps of depth: see spread_start */
    WAVES = 8                    /* tiles of each cluster, the same */
};

struct shared {
    uint8_t a[STAGES][A_BYTES];
    uint8_t b[STAGES][B_BYTES];
    uint8_t boxes[CONSUMER_WARPS][2][BOX_BYTES];
    uint64_t full[STAGES], empty[STAGES];
    struct {
        uint64_t loaded;                 /* boxes have come */
        int row, unused;                 /* of z, the first of the warp's */
    } z[CONSUMER_WARPS];                 /* DOWN_BACKWARD */
    int first_row[GROUPED_EXPERTS + 1];  /* of an expert */
    int first_item[GROUPED_EXPERTS + 1]; /* of an expert in its turn */
    uint8_t turns[GROUPED_EXPERTS];      /* the experts in the order they are worked on */
    int shift[2];                        /* base[0] and base[1] of struct work; 0 for NULL */
};
static_assert(sizeof(shared) <= 227 * 1024, "shared memory of a block");

struct work {
    const int32_t *offsets; /* [E + 1]; NULL: one expert has all rows */
    const int32_t *base[2]; /* first row of a; of b (WEIGHTS), z (UP, DOWN_BACKWARD); NULL: 0 */
    const float *p;         /* [rows] UP, DOWN_BACKWARD */
    float *dp;              /* [column tiles, rows] DOWN_BACKWARD */
    int E, rows;
    int tiles_high; /* row tiles of an expert's result; WEIGHTS alone: else they follow from offsets
                     */
    int tiles_wide;
    int steps; /* of depth; all but WEIGHTS */
    bool add;  /* WEIGHTS: to what is there */
    /* WEIGHTS, of struct gradient; own_rows 0: there are none */
    bool own_add;
    int N, own_first, own_rows;
};

struct tile {
    int expert, high, wide; /* indices of this block's tile */
    int row;                /* first of the expert */
    int steps;
    bool shares_b; /* with the other block of the cluster; else a */
    int n_rows;    /* of it that are the expert's: the rest are another's, or nobody's */
};

#if HOPPER

static __device__ __forceinline__ int rows_of(const shared &s, int expert) {
    return s.first_row[expert + 1] - s.first_row[expert];
}

template <int PRODUCT> static __device__ int tiles_high(const work &w, int rows) {
    if (PRODUCT != WEIGHTS) return (rows + TILE_ROWS - 1) / TILE_ROWS;
    return w.add && rows == 0 ? 0 : w.tiles_high;
}

/* WEIGHTS takes the experts with most rows first, since its items differ in length. */
template <int PRODUCT> static __device__ void order_experts(shared &s, const work &w) {
    int e = threadIdx.x;
    if (e >= w.E) return;
    int turn = e;
    if (PRODUCT == WEIGHTS) {
        turn = 0;
        for (int o = 0; o < w.E; o++)
            turn += rows_of(s, o) > rows_of(s, e) || (rows_of(s, o) == rows_of(s, e) && o < e);
    }
    s.turns[turn] = static_cast<uint8_t>(e);
}

/* One warp. */
template <int PRODUCT> static __device__ void count_items(shared &s, const work &w) {
    int lane = threadIdx.x, before = 0;
    for (int first = 0; first < w.E; first += 32) {
        int turn = first + lane, items = 0;
        if (turn < w.E) {
            int high = tiles_high<PRODUCT>(w, rows_of(s, s.turns[turn]));
            items = high / 2 * w.tiles_wide + high % 2 * ((w.tiles_wide + 1) / 2);
        }
        int sum = items;
        for (int step = 1; step < 32; step *= 2) {
            int below = __shfl_up_sync(~0u, sum, step);
            if (lane >= step) sum += below;
        }
        if (turn < w.E) s.first_item[turn + 1] = before + sum;
        before += __shfl_sync(~0u, sum, 31);
    }
    if (lane == 0) s.first_item[0] = 0;
}

/* All threads of the block. */
template <int PRODUCT> static __device__ void make_tables(shared &s, const work &w) {
    if (threadIdx.x <= w.E)
        s.first_row[threadIdx.x] = w.offsets ? w.offsets[threadIdx.x] : threadIdx.x * w.rows;
    if (threadIdx.x == 0) { /* an index that varies would cost registers */
        s.shift[0] = w.base[0] ? *w.base[0] : 0;
        s.shift[1] = w.base[1] ? *w.base[1] : 0;
    }
    __syncthreads();
    order_experts<PRODUCT>(s, w);
    __syncthreads();
    if (threadIdx.x < 32) count_items<PRODUCT>(s, w);
    __syncthreads();
}

/* Each role of a block walks the same tiles. */
template <int PRODUCT> struct walk {
    const shared &s;
    const work &w;
    int turn, item;

    __device__ walk(const shared &s, const work &w)
        : s(s), w(w), turn(0),
          item(static_cast<int>(blockIdx.x / CLUSTER) - static_cast<int>(gridDim.x / CLUSTER)) {}

    /* To the next tile; false: there is none. */
    __device__ bool next() {
        item += gridDim.x / CLUSTER;
        while (turn < w.E && item >= s.first_item[turn + 1]) turn++;
        return turn < w.E;
    }

    /* The tile it stands on. */
    __device__ void get(tile &t) const {
        const int local = item - s.first_item[turn], rank = hopper::cluster_rank();
        t.expert = s.turns[turn];
        t.row = s.first_row[t.expert];
        const int rows = s.first_row[t.expert + 1] - t.row;
        const int high = tiles_high<PRODUCT>(w, rows), pairs = high / 2;
        t.steps = PRODUCT == WEIGHTS ? rows / TILE_DEPTH : w.steps;
        t.shares_b = local < pairs * w.tiles_wide;
        if (t.shares_b) {
            const int strip = local / (SUPER_ROWS * w.tiles_wide),
                      within = local - strip * SUPER_ROWS * w.tiles_wide;
            const int tall = min(+SUPER_ROWS, pairs - strip * SUPER_ROWS);
            t.wide = within / tall;
            t.high = (strip * SUPER_ROWS + within - t.wide * tall) * 2 + rank;
        } else { /* may lie past the right edge: zeros are read, nothing is written */
            t.wide = (local - pairs * w.tiles_wide) * 2 + rank;
            t.high = high - 1;
        }
        t.n_rows = rows - t.high * TILE_ROWS;
    }

    __device__ bool next(tile &t) {
        if (!next()) return false;
        get(t);
        return true;
    }
};

/* Blocks that start together end their tiles together, and then all write at once. Where tiles are
 * short and many they start spread over the length of one, WEIGHTS all, else those with an item
 * less than the first ones. Long ones must read about the same depth at a time, for the L2 cache.
 */
template <int PRODUCT> static __device__ void spread_start(const shared &s, const work &w) {
    const int clusters = gridDim.x / CLUSTER, c = blockIdx.x / CLUSTER;
    const int longer = PRODUCT == WEIGHTS ? 0 : s.first_item[w.E] % clusters;
    const int steps = PRODUCT == WEIGHTS ? rows_of(s, s.turns[0]) / TILE_DEPTH : w.steps;
    if (steps > SHORT || c < longer || s.first_item[w.E] < WAVES * clusters) return;
    const long long until = clock64() + 1024ll * steps * (c - longer) / (clusters - longer);
    while (clock64() < until) __nanosleep(200);
}

#endif
} // namespace grouped_gemm
#endif
