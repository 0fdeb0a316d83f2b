/* The kernel of the grouped products in eight bits. Tiles, stages and roles are those of
 * grouped_kernel.cuh: a step is 128 bytes of depth there and here, so 128 elements. What tensor
 * cores add up inside is short, and blocks of 128 have scales: after each step the sums are taken
 * out of them, scaled, and added to the tile's results. A warpgroup does so for 128 columns at a
 * time, while the other one's products are under way. */
#ifndef REGULON_KERNELS_GROUPED_FP8_KERNEL_CUH
#define REGULON_KERNELS_GROUPED_FP8_KERNEL_CUH
#include "fp8.cuh"
#include "grouped_kernel.cuh"

namespace grouped_gemm {

enum { FP8_DEPTH = GROUPED_FP8_UNIT };

/* Where the scales lie: of operand a one for each of its rows and 128 of depth, of b one for 128 of
 * its rows and 128 of depth. Distances in elements. */
struct fp8_scales {
    const float *a, *b;
    int a_step;                   /* to the next 128 of depth */
    int b_step, b_expert, b_last; /* b_last: index of an expert's last scale across */
    int b_across;                 /* to the next 128 rows of b */
    float *h;                     /* UP: of what is written, [F / 128, rows]; */
    float *z;                     /* of z in eight bits, [2F / 128, z_rows] */
    int z_rows;
};

#if HOPPER

template <int PRODUCT>
static __device__ __forceinline__ hopper::place fp8_place_a(const tile &t, int step, int half) {
    const int high = t.high * TILE_ROWS + half * 64, depth = step * FP8_DEPTH;
    if (PRODUCT == WEIGHTS) return {{t.row + depth, high}};
    return {{depth, t.row + high}};
}

template <int PRODUCT>
static __device__ __forceinline__ hopper::place fp8_place_b(const tile &t, int step, int half) {
    const int wide = t.wide * TILE_COLS + half * (TILE_COLS / 2), depth = step * FP8_DEPTH;
    if (PRODUCT == WEIGHTS) return {{t.row + depth, wide}};
    if (PRODUCT == UP) return {{depth, t.wide * (TILE_COLS / 2), half, t.expert}};
    return {{depth, wide, t.expert}};
}

template <int PRODUCT> static __device__ __forceinline__ int fp8_steps(const tile &t) {
    return PRODUCT == WEIGHTS ? t.steps / (FP8_DEPTH / TILE_DEPTH) : t.steps;
}

template <int PRODUCT> static __device__ void fp8_load(shared &s, const work &w, const maps &m) {
    constexpr int RANK_B = PRODUCT == WEIGHTS ? 2 : PRODUCT == UP ? 4 : 3;
    const int rank = hopper::cluster_rank();
    walk<PRODUCT> tiles(s, w);
    tile t;
    int stage = 0;
    uint32_t parity = 1; /* nobody has to leave the first round */
    while (tiles.next(t)) {
        for (int step = 0; step < fp8_steps<PRODUCT>(t); step++) {
            const uint32_t full = shared_address(&s.full[stage]);
            const uint32_t a = shared_address(s.a[stage]), b = shared_address(s.b[stage]);
            hopper::barrier_wait(shared_address(&s.empty[stage]), parity);
            delay(1);
            hopper::barrier_expect(full, A_BYTES + B_BYTES);
            /* of the operand that is shared its half for both blocks, of the other one all */
            if (t.shares_b) {
                for (int half = 0; half < 2; half++)
                    hopper::box_load<2>(a + half * (A_BYTES / 2), &m.a, full,
                                        fp8_place_a<PRODUCT>(t, step, half));
                hopper::box_load_both<RANK_B>(b + rank * (B_BYTES / 2), &m.b, full,
                                              fp8_place_b<PRODUCT>(t, step, rank));
            } else {
                hopper::box_load_both<2>(a + rank * (A_BYTES / 2), &m.a, full,
                                         fp8_place_a<PRODUCT>(t, step, rank));
                for (int half = 0; half < 2; half++)
                    hopper::box_load<RANK_B>(b + half * (B_BYTES / 2), &m.b, full,
                                             fp8_place_b<PRODUCT>(t, step, half));
            }
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    }
}

/* The scales of a warp's rows and of the tile's two halves of columns, a step ahead. */
template <int PRODUCT> struct fp8_scales_ahead {
    const float *a, *b[2];
    float row[2], col[2];

    static __device__ __forceinline__ float get(const float *p) {
        float x; /* now, not at its use */
        asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(x) : "l"(p));
        return x;
    }
    __device__ __forceinline__ void begin(const fp8_scales &f, const work &w, const tile &t,
                                          int warp) {
        const int high = t.high * TILE_ROWS + warp * 16 + threadIdx.x % 32 / 4,
                  block = t.row / FP8_DEPTH;
        a = f.a + (PRODUCT == WEIGHTS ? static_cast<size_t>(block) * f.a_step + high
                                      : static_cast<size_t>(t.row + high));
        const float *of = f.b + (PRODUCT == WEIGHTS ? static_cast<size_t>(block) * f.b_step
                                                    : static_cast<size_t>(t.expert) * f.b_expert);
        for (int half = 0; half < 2; half++) { /* a half past the edge has any: it is not stored */
            const int across = PRODUCT == UP ? t.wide + half * w.tiles_wide : t.wide * 2 + half;
            b[half] = of + static_cast<size_t>(min(across, f.b_last)) * f.b_across;
        }
        load();
    }
    __device__ __forceinline__ void load() {
        row[0] = get(a), row[1] = get(a + 8), col[0] = get(b[0]), col[1] = get(b[1]);
    }
    __device__ __forceinline__ void next(const fp8_scales &f) {
        a += f.a_step, b[0] += f.b_step, b[1] += f.b_step;
        load();
    }
};

/* A warp's 16 rows on their way out, box by box through its two places. */
template <int PRODUCT, bool LOW_Z> struct fp8_results {
    const maps &m;
    const work &w;
    uint32_t boxes;
    int lane, slot;
    int z_shift; /* UP */

    __device__ fp8_results(shared &s, const maps &m, const work &w, int warp)
        : m(m), w(w), boxes(shared_address(s.boxes[warp])), lane(threadIdx.x % 32), slot(0),
          z_shift(s.shift[1]) {}

    __device__ __forceinline__ uint32_t free_box() {
        if (lane == 0) hopper::stores_read<1>();
        __syncwarp();
        return boxes + slot * BOX_BYTES;
    }
    template <int RANK>
    __device__ __forceinline__ void send(const CUtensorMap &map, uint32_t box, hopper::place at) {
        hopper::writes_to_copies();
        __syncwarp();
        if (lane == 0) {
            if (PRODUCT == WEIGHTS)
                box_leave(m, w, box, at);
            else
                hopper::box_store<RANK>(&map, box, at);
            hopper::stores_commit();
        }
        slot ^= 1;
    }

    /* 16 rows x 64 columns in BF16 */
    template <int RANK>
    __device__ __forceinline__ void store_half(const CUtensorMap &map, const float *v,
                                               hopper::place at) {
        const uint32_t box = free_box();
#pragma unroll
        for (int j = 0; j < 8; j += 2)
            hopper::store_matrices(
                box + (lane & 15) * 128 + (((j + (lane >> 4)) ^ (lane & 7)) << 4),
                pack_pair(v[4 * j], v[4 * j + 1]), pack_pair(v[4 * j + 2], v[4 * j + 3]),
                pack_pair(v[4 * j + 4], v[4 * j + 5]), pack_pair(v[4 * j + 6], v[4 * j + 7]));
        send<RANK>(map, box, at);
    }

    /* 16 rows x 32 columns in FP32: see store_floats of grouped_stores.cuh */
    __device__ __forceinline__ void store_floats(const float *v, hopper::place at) {
        const uint32_t box = free_box();
        const int line = lane >> 2, odd = line & 1;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int other = i ^ 2, group = odd ? other : i;
            const float v0 = odd ? v[other * 4] : v[i * 4],
                        v1 = odd ? v[other * 4 + 1] : v[i * 4 + 1],
                        v2 = odd ? v[other * 4 + 2] : v[i * 4 + 2],
                        v3 = odd ? v[other * 4 + 3] : v[i * 4 + 3];
            const uint32_t at_box =
                box + line * 128 + (((2 * group + ((lane & 3) >> 1)) ^ line) << 4) + (lane & 1) * 8;
            hopper::store_pair(at_box, __float_as_uint(v0), __float_as_uint(v1));
            hopper::store_pair(at_box + 1024, __float_as_uint(v2), __float_as_uint(v3));
        }
        send<3>(m.c, box, at);
    }

    /* 16 rows x 128 columns in eight bits: the columns of a row, which share a scale, are one
     * thread quad's. The first row's scale lies at `first`; there: there are such columns. */
    template <int RANK>
    __device__ __forceinline__ void store_codes(const CUtensorMap &map, const float (&v)[64],
                                                float *scales, uint32_t first, bool there,
                                                hopper::place at) {
        uint32_t most[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 64; i++) most[i / 2 % 2] = max(most[i / 2 % 2], magnitude(v[i]));
        const uint32_t box = free_box();
#pragma unroll
        for (int k = 0; k < 2; k++) {
            for (int step = 1; step < 4; step *= 2)
                most[k] = max(most[k], __shfl_xor_sync(~0u, most[k], step));
            const fp8_scale s = fp8_scale_of(most[k]);
            const int line = (lane >> 2) + 8 * k;
            if ((lane & 3) == 0 && there) scales[first + line] = s.scale;
#pragma unroll
            for (int j = 0; j < 16; j++) {
                const uint32_t pair =
                    fp8_pair(v[4 * j + 2 * k] * s.inverse, v[4 * j + 2 * k + 1] * s.inverse);
                asm volatile("st.shared.u16 [%0], %1;" ::"r"(box + line * 128 +
                                                             (((j / 2) ^ (line & 7)) << 4) +
                                                             (j % 2) * 8 + (lane & 3) * 2),
                             "h"(static_cast<uint16_t>(pair))
                             : "memory");
            }
        }
        send<RANK>(map, box, at);
    }

    /* UP: z, which becomes what BF16 has of it, and h made of that. */
    __device__ __forceinline__ void store_up(float (&gate)[64], float (&up)[64],
                                             const fp8_scales &f, int row, int wide) {
        const int col = wide * (TILE_COLS / 2);
        const bool there = wide < w.tiles_wide;
        if constexpr (!LOW_Z) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                store_half<3>(m.c, &(i < 2 ? gate : up)[i % 2 * 32],
                              {{col + i % 2 * 64, i / 2, row + z_shift}});
        }
#pragma unroll
        for (int i = 0; i < 64; i++) gate[i] = as_bf16(gate[i]), up[i] = as_bf16(up[i]);
        if constexpr (LOW_Z) {
            store_codes<3>(m.c, gate, f.z, wide * f.z_rows + row + z_shift, there,
                           {{col, 0, row + z_shift}});
            store_codes<3>(m.c, up, f.z, (w.tiles_wide + wide) * f.z_rows + row + z_shift, there,
                           {{col, 1, row + z_shift}});
        }
        const float p[2] = {w.p[row + lane / 4], w.p[row + lane / 4 + 8]};
#pragma unroll
        for (int i = 0; i < 64; i++) gate[i] = swiglu(gate[i], up[i], p[i / 2 % 2]);
        store_codes<2>(m.h, gate, f.h, wide * w.rows + row, there, {{col, row}});
    }

    static __device__ __forceinline__ float as_bf16(float x) {
        return high(pack_pair(0, x));
    }

    __device__ __forceinline__ void store(float (&v)[2][64], const tile &t, int row,
                                          const fp8_scales &f) {
        const int col = t.wide * TILE_COLS;
        if constexpr (PRODUCT == WEIGHTS) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                store_floats(&v[i / 4][i % 4 * 16], {{col + i * 32, row, t.expert}});
        } else if constexpr (PRODUCT == UP) {
            store_up(v[0], v[1], f, row, t.wide);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                store_half<2>(m.c, &v[i / 2][i % 2 * 32], {{col + i * 64, row}});
        }
    }
};

template <int PRODUCT, bool LOW_Z>
static __device__ void fp8_multiply(shared &s, const work &w, const maps &m, const fp8_scales &f) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int half = __shfl_sync(~0u, warp / 4, 0); /* of the tile's rows: this warpgroup's */
    fp8_results<PRODUCT, LOW_Z> out(s, m, w, warp);
    fp8_scales_ahead<PRODUCT> scales;
    walk<PRODUCT> tiles(s, w);
    tile t;
    int stage = 0;
    uint32_t parity = 0;
    float sum[2][64], acc[64];
#pragma unroll
    for (int i = 0; i < 64; i++) acc[i] = 0;

    while (tiles.next(t)) {
        const int steps = fp8_steps<PRODUCT>(t);
#pragma unroll
        for (int i = 0; i < 64; i++) sum[0][i] = sum[1][i] = 0;
        if (steps > 0) scales.begin(f, w, t, warp);
        for (int step = 0; step < steps; step++) {
            const float row[2] = {scales.row[0], scales.row[1]};
            const float col[2] = {scales.col[0], scales.col[1]};
            if (step + 1 < steps) scales.next(f);
            hopper::barrier_wait(shared_address(&s.full[stage]), parity);
            const uint64_t a =
                hopper::descriptor(false, shared_address(s.a[stage]) + half * (A_BYTES / 2));
            const uint64_t b = hopper::descriptor(false, shared_address(s.b[stage]));
#pragma unroll
            for (int side = 0; side < 2; side++) {
                hopper::pin(acc);
                hopper::wgmma_fence();
#pragma unroll
                for (int k = 0; k < FP8_DEPTH / 32; k++)
                    hopper::wgmma_64x128x32(acc, a + k * 2, b + side * (B_BYTES / 2 >> 4) + k * 2,
                                            k > 0);
                hopper::wgmma_commit();
                delay(warp);
                hopper::wgmma_wait<0>();
                hopper::pin(acc);
                if (side == 1 && lane < CLUSTER) /* read: those who write it, in both blocks, may */
                    hopper::barrier_arrive(shared_address(&s.empty[stage]), lane);
                const float factor[2] = {row[0] * col[side], row[1] * col[side]};
#pragma unroll
                for (int i = 0; i < 64; i++)
                    sum[side][i] = fmaf(acc[i], factor[i / 2 % 2], sum[side][i]);
            }
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
        const int first = (PRODUCT == WEIGHTS ? 0 : t.row) + t.high * TILE_ROWS + warp * 16;
        out.store(sum, t, first, f);
    }
    if (lane == 0) hopper::stores_done();
}

#endif

/* LOW_Z: UP writes z in eight bits. */
template <int PRODUCT, bool LOW_Z = false>
static __global__ void __launch_bounds__(THREADS, 1)
    grouped_fp8_kernel(const __grid_constant__ maps m, const __grid_constant__ work w,
                       const __grid_constant__ fp8_scales f) {
#if HOPPER
    extern __shared__ __align__(1024) uint8_t bytes[];
    shared &s = *reinterpret_cast<shared *>(bytes);
    make_barriers(s);
    make_tables<PRODUCT>(s, w);
    hopper::cluster_sync();
    if (threadIdx.x >= CONSUMERS) {
        hopper::registers_down_to<40>();
        if (threadIdx.x == CONSUMERS) fp8_load<PRODUCT>(s, w, m);
        __syncwarp();
    } else {
        hopper::registers_up_to<232>();
        fp8_multiply<PRODUCT, LOW_Z>(s, w, m, f);
    }
    hopper::cluster_sync(); /* the other block may still write here */
#endif
}

} // namespace grouped_gemm
#endif
