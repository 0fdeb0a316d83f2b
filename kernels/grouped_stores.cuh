/* How the results of a tile leave a block. Each warp stores its 16 rows in boxes of 16 lines of 128
 * bytes, through two places of its own in shared memory, without waiting for other warps. What the
 * accumulators hold moves to registers when a tile is done, so that the next one can begin at once;
 * the boxes leave behind its products, a step of depth at a time.
 *
 * A held pair is two columns in BF16, at [group of 8 columns][row l / 4, row l / 4 + 8] of lane l.
 */
#ifndef REGULON_KERNELS_GROUPED_STORES_CUH
#define REGULON_KERNELS_GROUPED_STORES_CUH
#include "grouped_tiles.cuh"
#include "mma.cuh"
#include "swiglu.cuh"
#include "vector.cuh"

namespace grouped_gemm {

/* Tensor maps of a launch: operands, results (c; h of UP and DOWN_BACKWARD; WEIGHTS: h is that of
 * own rows), z to be read. */
struct maps {
    CUtensorMap a, b, c, h, z;
};

#if HOPPER

static __device__ __forceinline__ float low(uint32_t pair) {
    return __uint_as_float(pair << 16);
}

static __device__ __forceinline__ float high(uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000u);
}

/* One thread: a box of WEIGHTS leaves, to own rows or to the others. */
static __device__ __forceinline__ void box_leave(const maps &m, const work &w, uint32_t box,
                                                 hopper::place at) {
    const unsigned row = at.at[2] * w.N + at.at[1] - w.own_first;
    const bool own = row < static_cast<unsigned>(w.own_rows);
    const CUtensorMap *map = own ? &m.h : &m.c;
    if (own ? w.own_add : w.add)
        hopper::box_add(map, box, at);
    else
        hopper::box_store<3>(map, box, at);
}

template <int PRODUCT> struct results {
    /* that are held: of 64 columns BF16 (UP: of gate and of up), 32 FP32 */
    static constexpr int BOXES = PRODUCT == UP ? 2 : 4;
    /* WEIGHTS has 8 boxes: 2 are stored at once, 2 wait in the places, 4 are held. All 4 at once
     * would hold up the loads. */
    static constexpr int WAITING = PRODUCT == WEIGHTS ? 2 : 0;
    /* UP: gate, up, h of a box. DOWN_BACKWARD: z is asked for; time; four quarters; h. A part takes
     * less time than the products of a step: more would stop them. */
    static constexpr int PARTS = PRODUCT == UP ? 3 : PRODUCT == DOWN_BACKWARD ? 7 : 1;
    static constexpr int STEPS = WAITING + BOXES * PARTS;
    static constexpr int HELD = 64;

    const shared &s;
    const maps &m;
    const work &w;
    uint32_t boxes, loaded; /* shared memory */
    int lane;
    int slot;     /* the place that is used next */
    int step;     /* STEPS: nothing is held */
    int expert;   /* whose results are held: of the tile */
    int row, col; /* of this warp's first */
    float p[2];   /* UP, DOWN_BACKWARD: of row lane / 4 and of the one 8 further */
    float dp[2];  /* DOWN_BACKWARD */
    uint32_t held[HELD];

    __device__ results(shared &s, const maps &m, const work &w, int warp)
        : s(s), m(m), w(w), boxes(shared_address(s.boxes[warp])),
          loaded(shared_address(&s.z[warp].loaded)), lane(threadIdx.x % 32), slot(0), step(STEPS) {}

    /* A place whose last store, two ago, has been read. */
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

    /* Line and chunk of 16 bytes where matrices of 8 columns j and j + 1 begin for this lane. */
    __device__ __forceinline__ uint32_t chunk(uint32_t box, int j) const {
        return box + (lane & 15) * 128 + (((j + (lane >> 4)) ^ (lane & 7)) << 4);
    }

    __device__ __forceinline__ void write_box(uint32_t box, const uint32_t *pairs) {
#pragma unroll
        for (int j = 0; j < 8; j += 2)
            hopper::store_matrices(chunk(box, j), pairs[2 * j], pairs[2 * j + 1], pairs[2 * j + 2],
                                   pairs[2 * j + 3]);
    }

    /* 16 rows x 64 columns */
    template <int RANK>
    __device__ __forceinline__ void store_pairs(const CUtensorMap &map, const uint32_t *pairs,
                                                hopper::place at) {
        const uint32_t box = free_box();
        write_box(box, pairs);
        send<RANK>(map, box, at);
    }

    /* 16 rows x 32 columns in FP32. Lanes of odd rows take the groups of columns in another order,
     * so that the 8-byte stores of half a warp meet different banks. */
    template <class T> __device__ __forceinline__ void write_floats(uint32_t box, const T *v) {
        const int line = lane >> 2, odd = line & 1;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int other = i ^ 2, group = odd ? other : i;
            const T x0 = v[i * 4], x1 = v[i * 4 + 1], x2 = v[i * 4 + 2], x3 = v[i * 4 + 3];
            const T y0 = v[other * 4], y1 = v[other * 4 + 1], y2 = v[other * 4 + 2],
                    y3 = v[other * 4 + 3];
            const uint32_t at =
                box + line * 128 + (((2 * group + ((lane & 3) >> 1)) ^ line) << 4) + (lane & 1) * 8;
            const T v0 = odd ? y0 : x0, v1 = odd ? y1 : x1, v2 = odd ? y2 : x2, v3 = odd ? y3 : x3;
            hopper::store_pair(at, bits(v0), bits(v1));
            hopper::store_pair(at + 1024, bits(v2), bits(v3));
        }
    }
    template <class T> __device__ __forceinline__ void store_floats(const T *v, int c) {
        const uint32_t box = free_box();
        write_floats(box, v);
        send<3>(m.c, box, {{c, row, expert}});
    }
    static __device__ __forceinline__ uint32_t bits(float x) {
        return __float_as_uint(x);
    }
    static __device__ __forceinline__ uint32_t bits(uint32_t x) {
        return x;
    }

    static __device__ __forceinline__ uint32_t up_pair(uint32_t gate, uint32_t up, float p) {
        return pack_pair(swiglu(low(gate), low(up), p), swiglu(high(gate), high(up), p));
    }

    /* UP: gate (0), up (1) or h (2) of 64 columns */
    template <int WHAT>
    __device__ __forceinline__ void store_up(const uint32_t *gate, const uint32_t *up, int c) {
        if constexpr (WHAT < 2) {
            store_pairs<3>(m.c, WHAT ? up : gate, {{c, WHAT, row + s.shift[1]}});
        } else {
            const uint32_t box = free_box();
#pragma unroll
            for (int j = 0; j < 8; j += 2) {
                uint32_t h[4];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    uint32_t g, u; /* now, not all at once, which would take registers */
                    asm volatile("mov.b32 %0, %1;" : "=r"(g) : "r"(gate[2 * j + k]));
                    asm volatile("mov.b32 %0, %1;" : "=r"(u) : "r"(up[2 * j + k]));
                    h[k] = up_pair(g, u, p[k % 2]);
                }
                hopper::store_matrices(chunk(box, j), h[0], h[1], h[2], h[3]);
            }
            send<2>(m.h, box, {{c, row}});
        }
    }

    __device__ __forceinline__ void load_p() {
#pragma unroll
        for (int k = 0; k < 2; k++) /* now, not at its use */
            asm volatile("ld.global.nc.f32 %0, [%1];"
                         : "=f"(p[k])
                         : "l"(w.p + row + lane / 4 + 8 * k));
    }

    /* ---- DOWN_BACKWARD: the gradient through the activation. Box i of dh is held; gate and up of
     * the same columns come into the two places, become dgate and dup there, and leave; then h
     * takes the place of dh. ---- */

    /* `row` among those of z: beside the barrier, since a register would be one too many. */
    __device__ __forceinline__ int row_of_z() const {
        int r;
        asm volatile("ld.shared.s32 %0, [%1 + 8];" : "=r"(r) : "r"(loaded));
        return r;
    }

    __device__ __forceinline__ void ask_for_z(int c) {
        __syncwarp(); /* after begin, of all lanes */
        if (lane == 0) {
            hopper::stores_read<0>();
            hopper::barrier_expect(loaded, 2 * BOX_BYTES);
            const int z_row = row_of_z();
            hopper::box_load<3>(boxes, &m.z, loaded, {{c, 0, z_row}});
            hopper::box_load<3>(boxes + BOX_BYTES, &m.z, loaded, {{c, 1, z_row}});
        }
        __syncwarp();
    }

    /* Pair k of a box: two columns of one row. */
    __device__ __forceinline__ void back_pair(uint32_t &gate, uint32_t &up, uint32_t &dh, int k) {
        swiglu_gradient l = swiglu_back(low(gate), low(up), p[k % 2], low(dh)),
                        r = swiglu_back(high(gate), high(up), p[k % 2], high(dh));
        dp[k % 2] += l.dp;
        dp[k % 2] += r.dp;
        gate = pack_pair(l.dgate, r.dgate), up = pack_pair(l.dup, r.dup);
        dh = pack_pair(l.h, r.h);
    }

    /* 16 columns of the box, from group j of 8 on. dh is held[0..3]; all that is held moves up by
     * that much, and h comes in at the end: so one piece of code, which stays in the instruction
     * cache, serves all columns. (Unrolled over them it took 1.2 times as long.) */
    __device__ __forceinline__ void back_quarter(int j) {
        uint32_t gate[4], up[4], h[4];
        load_matrices(gate, chunk(boxes, j));
        load_matrices(up, chunk(boxes + BOX_BYTES, j));
#pragma unroll
        for (int k = 0; k < 4; k++) {
            h[k] = held[k];
            back_pair(gate[k], up[k], h[k], k);
        }
        hopper::store_matrices(chunk(boxes, j), gate[0], gate[1], gate[2], gate[3]);
        hopper::store_matrices(chunk(boxes + BOX_BYTES, j), up[0], up[1], up[2], up[3]);
#pragma unroll
        for (int k = 0; k + 4 < HELD; k++) /* moved, not renamed: that would take registers */
            asm volatile("mov.b32 %0, %1;" : "=r"(held[k]) : "r"(held[k + 4]));
#pragma unroll
        for (int k = 0; k < 4; k++) held[HELD - 4 + k] = h[k];
    }

    __device__ __forceinline__ void send_dz(int c) {
        hopper::writes_to_copies();
        __syncwarp();
        if (lane == 0) {
            const int z_row = row_of_z();
            hopper::box_store<3>(&m.c, boxes, {{c, 0, z_row}});
            hopper::box_store<3>(&m.c, boxes + BOX_BYTES, {{c, 1, z_row}});
            hopper::stores_commit();
        }
        __syncwarp();
    }

    __device__ __forceinline__ void send_h(const uint32_t *h, int c) {
        if (lane == 0) hopper::stores_read<0>();
        __syncwarp();
        write_box(boxes, h);
        hopper::writes_to_copies();
        __syncwarp();
        if (lane == 0) {
            hopper::box_store<2>(&m.h, boxes, {{c, row}});
            hopper::stores_commit();
        }
        __syncwarp();
    }

    /* The sum over the tile's columns of the rows' dp. */
    __device__ __forceinline__ void store_dp() {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            float sum = warp_sum(dp[k], 4);
            const int wide = col / TILE_COLS;
            if (lane % 4 == 0 && wide < w.tiles_wide)
                w.dp[static_cast<size_t>(wide) * w.rows + row + lane / 4 + 8 * k] = sum;
        }
    }

    __device__ __forceinline__ void back_part(int box, int part) {
        const int c = col + box * 64;
        if (part == 0) {
            ask_for_z(c);
            if (box == 0) load_p(), dp[0] = dp[1] = 0;
        } else if (part == 6) {
            send_h(held + HELD - 16, c);
            if (box == BOXES - 1) store_dp();
        } else if (part > 1) {
            if (part == 2) hopper::barrier_wait(loaded, box % 2); /* a tile has four */
            back_quarter(2 * (part - 2));
            if (part == 5) send_dz(c);
        }
    }

    /* ---- step by step ---- */

    template <int STEP> __device__ __forceinline__ void store_step() {
        if constexpr (STEP < STEPS) {
            if constexpr (STEP < WAITING)
                send<3>(m.c, boxes + slot * BOX_BYTES, {{col + (2 + STEP) * 32, row, expert}});
            else if constexpr (PRODUCT == WEIGHTS)
                store_floats(held + (STEP - WAITING) * 16, col + (2 + STEP) * 32);
            else if constexpr (PRODUCT == UP)
                store_up<STEP % PARTS>(held + STEP / PARTS * 16, held + 32 + STEP / PARTS * 16,
                                       col + STEP / PARTS * 64);
            else
                store_pairs<2>(m.c, held + STEP * 16, {{col + STEP * 64, row}});
        }
    }

    __device__ __forceinline__ bool holds() const {
        return step < STEPS;
    }

    /* DOWN_BACKWARD's parts and WEIGHTS' boxes are spread over the steps of the tile that is under
     * way: all at once, what is added to memory would hold up the loads. */
    __device__ __forceinline__ bool due(int at, int steps) const {
        constexpr bool SPREAD = PRODUCT == DOWN_BACKWARD || PRODUCT == WEIGHTS;
        return holds() && (!SPREAD || step * steps <= at * STEPS);
    }

    /* The case labels are what keeps `held` in registers. */
    __device__ __forceinline__ void store_next() {
        if constexpr (PRODUCT == DOWN_BACKWARD) {
            back_part(step / PARTS, step % PARTS);
            step++;
        } else {
            switch (step++) {
            case 0:
                store_step<0>();
                break;
            case 1:
                store_step<1>();
                break;
            case 2:
                store_step<2>();
                break;
            case 3:
                store_step<3>();
                break;
            case 4:
                store_step<4>();
                break;
            case 5:
                store_step<5>();
                break;
            }
        }
    }

    __device__ __forceinline__ void store_rest() {
        while (holds()) store_next();
    }

    /* Nothing is held; from here on the results are those of this tile. */
    __device__ __forceinline__ void begin(const tile &of, int first_row) {
        expert = of.expert, row = first_row, step = 0;
        col = of.wide * (PRODUCT == UP ? TILE_COLS / 2 : +TILE_COLS);
        if (PRODUCT == UP) load_p();
        if (PRODUCT == DOWN_BACKWARD) /* all threads the same: by one it would take registers */
            asm volatile("st.shared.s32 [%0 + 8], %1;" ::"r"(loaded), "r"(row + s.shift[1]));
    }

    /* WEIGHTS: of an expert without rows */
    __device__ __forceinline__ void store_zeros() {
        const float zeros[16] = {};
        for (int i = 0; i < 8; i++) store_floats(zeros, col + i * 32);
        step = STEPS;
    }

    /* The accumulators are complete: some are stored, what the places in shared memory take waits
     * there, the rest is held. */
    __device__ __forceinline__ void take(const float (&acc)[128]) {
        if constexpr (PRODUCT == WEIGHTS) {
#pragma unroll
            for (int i = 0; i < HELD; i++) /* now, not at its use, when acc is being written */
                asm volatile("mov.b32 %0, %1;" : "=r"(held[i]) : "f"(acc[128 - HELD + i]));
#pragma unroll
            for (int i = 0; i < 2; i++) store_floats(acc + i * 16, col + i * 32);
            if (lane == 0) hopper::stores_read<0>();
            __syncwarp();
#pragma unroll
            for (int i = 0; i < WAITING; i++)
                write_floats(boxes + (slot ^ i) * BOX_BYTES, acc + (2 + i) * 16);
        } else {
#pragma unroll
            for (int i = 0; i < HELD; i++) held[i] = pack_pair(acc[2 * i], acc[2 * i + 1]);
        }
    }
};

#endif
} // namespace grouped_gemm
#endif
