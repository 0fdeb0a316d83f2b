/* The kernel of the grouped products: they differ in how the operands lie in memory, in the places
 * of the boxes, and in what is done with the results. A thread of each block loads the tiles, two
 * warpgroups multiply 64 rows each. See README.md in this folder. */
#ifndef REGULON_KERNELS_GROUPED_KERNEL_CUH
#define REGULON_KERNELS_GROUPED_KERNEL_CUH
#include "grouped_stores.cuh"

namespace grouped_gemm {

#if HOPPER

/* With GROUPED_DELAYS the roles are delayed at random: missing synchronisation shows. */
static __device__ __forceinline__ void delay(int salt) {
#ifdef GROUPED_DELAYS
    const uint32_t r =
        (static_cast<uint32_t>(clock64()) ^ salt * 2654435761u ^ blockIdx.x * 40503u) * 2246822519u;
    if (r >> 28 == 0) __nanosleep(r >> 8 & 4095);
#else
    (void)salt;
#endif
}

/* ---- loading ---- */

/* Where the boxes of operand a lie: half 0 or 1 of the tile's rows; shift: where rows begin. */
template <int PRODUCT>
static __device__ __forceinline__ hopper::place place_a(const tile &t, int shift, int step,
                                                        int half) {
    const int row = shift + t.row;
    if (PRODUCT == WEIGHTS) return {{0, row + step * TILE_DEPTH, t.high * (TILE_ROWS / 64) + half}};
    return {{step * TILE_DEPTH, row + t.high * TILE_ROWS + half * 64}};
}

/* And of b: half of the columns; UP: of gate, and of up. */
template <int PRODUCT>
static __device__ __forceinline__ hopper::place place_b(const tile &t, int shift, int step,
                                                        int half) {
    if (PRODUCT == WEIGHTS)
        return {{0, shift + t.row + step * TILE_DEPTH, t.wide * (TILE_COLS / 64) + half * 2}};
    if (PRODUCT == UP) return {{step * TILE_DEPTH, t.wide * (TILE_COLS / 2), half, t.expert}};
    if (PRODUCT == FORWARD)
        return {{step * TILE_DEPTH, t.wide * TILE_COLS + half * (TILE_COLS / 2), t.expert}};
    return {{0, step * TILE_DEPTH, t.wide * (TILE_COLS / 64) + half * 2, t.expert}};
}

template <int PRODUCT> static __device__ void load(shared &s, const work &w, const maps &m) {
    constexpr int RANK_A = PRODUCT == WEIGHTS ? 3 : 2,
                  RANK_B = PRODUCT == WEIGHTS || PRODUCT == FORWARD ? 3 : 4;
    const int rank = hopper::cluster_rank(),
              shift_a = PRODUCT == FORWARD || PRODUCT == DOWN_BACKWARD ? 0 : s.shift[0],
              shift_b = PRODUCT == WEIGHTS ? s.shift[1] : 0;
    walk<PRODUCT> tiles(s, w);
    tile t;
    int stage = 0;
    uint32_t parity = 1; /* nobody has to leave the first round */
    spread_start<PRODUCT>(s, w);
    while (tiles.next(t)) {
        for (int step = 0; step < t.steps; step++) {
            const uint32_t full = shared_address(&s.full[stage]);
            const uint32_t a = shared_address(s.a[stage]), b = shared_address(s.b[stage]);
            hopper::barrier_wait(shared_address(&s.empty[stage]), parity);
            delay(1);
            hopper::barrier_expect(full, A_BYTES + B_BYTES);
            /* of the operand that is shared its half for both blocks, of the other one all */
            if (t.shares_b) {
                for (int half = 0; half < 2; half++)
                    hopper::box_load<RANK_A>(a + half * (A_BYTES / 2), &m.a, full,
                                             place_a<PRODUCT>(t, shift_a, step, half));
                hopper::box_load_both<RANK_B>(b + rank * (B_BYTES / 2), &m.b, full,
                                              place_b<PRODUCT>(t, shift_b, step, rank));
            } else {
                hopper::box_load_both<RANK_A>(a + rank * (A_BYTES / 2), &m.a, full,
                                              place_a<PRODUCT>(t, shift_a, step, rank));
                for (int half = 0; half < 2; half++)
                    hopper::box_load<RANK_B>(b + half * (B_BYTES / 2), &m.b, full,
                                             place_b<PRODUCT>(t, shift_b, step, half));
            }
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    }
}

/* ---- multiplying ---- */

template <int PRODUCT> static __device__ void multiply(shared &s, const work &w, const maps &m) {
    constexpr int A_MN = PRODUCT == WEIGHTS, B_MN = PRODUCT != FORWARD && PRODUCT != UP;
    /* the next tile is found behind the products, where there are registers for it */
    constexpr bool AHEAD = PRODUCT != WEIGHTS && PRODUCT != DOWN_BACKWARD;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int half = __shfl_sync(~0u, warp / 4, 0); /* of the tile's rows: this warpgroup's */
    results<PRODUCT> out(s, m, w, warp);
    walk<PRODUCT> tiles(s, w);
    tile t, ahead;
    bool more = AHEAD && tiles.next(t);
    int stage = 0;
    uint32_t parity = 0;
    float acc[128];
#pragma unroll
    for (int i = 0; i < 128; i++) acc[i] = 0;

    /* this warp has read the stage: those who write it, in both blocks, may */
    auto leave = [&](int which) {
        if (lane < CLUSTER) hopper::barrier_arrive(shared_address(&s.empty[which]), lane);
    };

    while (AHEAD ? more : tiles.next(t)) {
        int row = (PRODUCT == WEIGHTS ? 0 : t.row) + t.high * TILE_ROWS + warp * 16;
        if (PRODUCT == WEIGHTS && t.steps == 0) {
            out.store_rest();
            out.begin(t, row);
            out.store_zeros();
            continue;
        }
        for (int step = 0; step < t.steps; step++) {
            hopper::barrier_wait(shared_address(&s.full[stage]), parity);
            const uint64_t a = hopper::descriptor(A_MN, shared_address(s.a[stage]) +
                                                            half * (A_BYTES / 2)),
                           b = hopper::descriptor(B_MN, shared_address(s.b[stage]));
            hopper::wgmma_fence();
#pragma unroll
            for (int k = 0; k < TILE_DEPTH / 16; k++)
                hopper::wgmma_64x256x16<A_MN, B_MN>(acc, a + k * hopper::k16(A_MN),
                                                    b + k * hopper::k16(B_MN), k > 0 || step > 0);
            hopper::wgmma_commit();
            if (out.due(step, t.steps)) out.store_next();
            delay(warp);
            hopper::wgmma_wait<1>();
            if (step > 0) leave(stage == 0 ? STAGES - 1 : stage - 1);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
        more = AHEAD && tiles.next(ahead);
        hopper::wgmma_wait<0>();
        leave(stage == 0 ? STAGES - 1 : stage - 1);
        out.store_rest();               /* a tile may have fewer steps than there are */
        if (PRODUCT == DOWN_BACKWARD) { /* again: it has no registers to keep it */
            tiles.get(t);
            row = t.row + t.high * TILE_ROWS + warp * 16;
        }
        if (PRODUCT == WEIGHTS || t.n_rows > half * 64) { /* else they are another expert's */
            out.begin(t, row);
            out.take(acc);
        }
        if (AHEAD) t = ahead;
    }
    out.store_rest();
    if (lane == 0) hopper::stores_done();
}

static __device__ __forceinline__ void make_barriers(shared &s) {
    if (threadIdx.x != 0) return;
    for (int i = 0; i < STAGES; i++) {
        hopper::barrier_init(shared_address(&s.full[i]), 1);
        hopper::barrier_init(shared_address(&s.empty[i]), CONSUMER_WARPS * CLUSTER);
    }
    for (int i = 0; i < CONSUMER_WARPS; i++)
        hopper::barrier_init(shared_address(&s.z[i].loaded), 1);
    hopper::barrier_init_done();
}

#endif

template <int PRODUCT>
static __global__ void __launch_bounds__(THREADS, 1)
    grouped_gemm_kernel(const __grid_constant__ maps m, const __grid_constant__ work w) {
#if HOPPER
    extern __shared__ __align__(1024) uint8_t bytes[];
    shared &s = *reinterpret_cast<shared *>(bytes);
    make_barriers(s);
    make_tables<PRODUCT>(s, w);
    hopper::cluster_sync();
    if (threadIdx.x >= CONSUMERS) {
        hopper::registers_down_to<40>();
        if (threadIdx.x == CONSUMERS) load<PRODUCT>(s, w, m);
        __syncwarp();
    } else {
        hopper::registers_up_to<232>();
        multiply<PRODUCT>(s, w, m);
    }
    hopper::cluster_sync(); /* the other block may still write here */
#endif
}

} // namespace grouped_gemm
#endif
