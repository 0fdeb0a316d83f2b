/* One persistent kernel for five products: they differ in how the operands lie in memory, in the
 * places of the boxes, and in what is done with the results. A thread of each block loads the
 * tiles, two warpgroups multiply 64 rows each. See README.md in this folder. */
#include "grouped_gemm.h"
#include "grouped_stores.cuh"
#include "tensor_map.cuh"

namespace grouped_gemm {

static_assert(TILE_ROWS == +GROUPED_ROWS && TILE_COLS == +GROUPED_COLS &&
                  MOST_EXPERTS == +GROUPED_EXPERTS,
              "what the header promises");

#if HOPPER

/* Builds for tests delay the roles at random: missing synchronisation shows. */
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

/* Where the boxes of operand a lie: half 0 or 1 of the tile's rows. */
template <int PRODUCT>
static __device__ __forceinline__ hopper::place place_a(const tile &t, int step, int half) {
    if (PRODUCT == WEIGHTS)
        return {{0, t.row + step * TILE_DEPTH, t.high * (TILE_ROWS / 64) + half}};
    return {{step * TILE_DEPTH, t.row + t.high * TILE_ROWS + half * 64}};
}

/* And of b: half of the columns; UP: of gate, and of up. */
template <int PRODUCT>
static __device__ __forceinline__ hopper::place place_b(const tile &t, int step, int half) {
    if (PRODUCT == WEIGHTS)
        return {{0, t.row + step * TILE_DEPTH, t.wide * (TILE_COLS / 64) + half * 2}};
    if (PRODUCT == UP) return {{step * TILE_DEPTH, t.wide * (TILE_COLS / 2), half, t.expert}};
    if (PRODUCT == FORWARD)
        return {{step * TILE_DEPTH, t.wide * TILE_COLS + half * (TILE_COLS / 2), t.expert}};
    return {{0, step * TILE_DEPTH, t.wide * (TILE_COLS / 64) + half * 2, t.expert}};
}

template <int PRODUCT> static __device__ void load(shared &s, const work &w, const maps &m) {
    constexpr int RANK_A = PRODUCT == WEIGHTS ? 3 : 2,
                  RANK_B = PRODUCT == WEIGHTS || PRODUCT == FORWARD ? 3 : 4;
    const int rank = hopper::cluster_rank();
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
                                             place_a<PRODUCT>(t, step, half));
                hopper::box_load_both<RANK_B>(b + rank * (B_BYTES / 2), &m.b, full,
                                              place_b<PRODUCT>(t, step, rank));
            } else {
                hopper::box_load_both<RANK_A>(a + rank * (A_BYTES / 2), &m.a, full,
                                              place_a<PRODUCT>(t, step, rank));
                for (int half = 0; half < 2; half++)
                    hopper::box_load<RANK_B>(b + half * (B_BYTES / 2), &m.b, full,
                                             place_b<PRODUCT>(t, step, half));
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
        const int row = (PRODUCT == WEIGHTS ? 0 : t.row) + t.high * TILE_ROWS + warp * 16;
        float factors[2] = {0, 0};
        if (PRODUCT == UP) factors[0] = w.p[row + lane / 4], factors[1] = w.p[row + lane / 4 + 8];
        if (PRODUCT == WEIGHTS && t.steps == 0) {
            out.store_rest();
            out.begin(t, row, factors);
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
        out.store_rest(); /* a tile may have fewer steps than there are */
        out.begin(t, row, factors);
        out.take(acc);
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
    for (int i = 0; i < CONSUMER_WARPS; i++) hopper::barrier_init(shared_address(&s.loaded[i]), 1);
    hopper::barrier_init_done();
}

#endif

template <int PRODUCT>
static __global__ void __launch_bounds__(THREADS, 1)
    run(const __grid_constant__ maps m, const __grid_constant__ work w) {
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

/* 1 if the code that runs on this device has the instructions. */
static __global__ void probe(int *can) {
    *can = HOPPER;
}

/* dp[r] = sum of parts[., r], in order */
static __global__ void __launch_bounds__(128)
    sum_parts(float *dp, const float *parts, const int32_t *offsets, int E, int rows, int n) {
    int r = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (r >= offsets[E]) return;
    float sum = 0;
    for (int i = 0; i < n; i++) sum += parts[static_cast<size_t>(i) * rows + r];
    dp[r] = sum;
}

} // namespace grouped_gemm

using namespace grouped_gemm;

struct grouped {
    encode_tensor_map encode;
    int multiprocessors;
    int clusters; /* that run at once: a part of the chip may have an odd number */
};

template <int PRODUCT> static cudaLaunchConfig_t config_of(cudaLaunchAttribute *cluster) {
    cudaLaunchConfig_t c = {};
    cluster->id = cudaLaunchAttributeClusterDimension;
    cluster->val.clusterDim.x = CLUSTER, cluster->val.clusterDim.y = cluster->val.clusterDim.z = 1;
    c.blockDim = THREADS, c.dynamicSmemBytes = sizeof(shared);
    c.attrs = cluster, c.numAttrs = 1;
    return c;
}

template <int PRODUCT> static cudaError_t prepare(struct grouped *g) {
    cudaLaunchAttribute cluster;
    cudaLaunchConfig_t c = config_of<PRODUCT>(&cluster);
    int clusters = 0;
    cudaError_t status =
        cudaFuncSetAttribute(run<PRODUCT>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(sizeof(shared)));
    if (status != cudaSuccess) return status;
    c.gridDim = g->multiprocessors / CLUSTER * CLUSTER;
    status = cudaOccupancyMaxActiveClusters(&clusters, run<PRODUCT>, &c);
    if (clusters < g->clusters) g->clusters = clusters;
    return status;
}

static int probed() {
    int can = 0, *there = nullptr;
    if (cudaMalloc(&there, sizeof *there) != cudaSuccess) return 0;
    probe<<<1, 1>>>(there);
    cudaMemcpy(&can, there, sizeof can, cudaMemcpyDeviceToHost);
    cudaFree(there);
    return cudaGetLastError() == cudaSuccess && can;
}

struct grouped *grouped_open(const char **why) {
    int device = 0, major = 0, minor = 0;
    struct grouped g = {};
    check(cudaGetDevice(&device));
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    check(cudaDeviceGetAttribute(&g.multiprocessors, cudaDevAttrMultiProcessorCount, device));
    g.clusters = g.multiprocessors / CLUSTER;
    *why = "it needs compute capability 9.0";
    if (major != 9 || minor != 0) return nullptr;
    *why = "this program was not compiled for sm_90a";
    if (!probed()) return nullptr;
    *why = "the driver has no cuTensorMapEncodeTiled";
    g.encode = tensor_map_encoder();
    if (!g.encode) return nullptr;
    check(prepare<FORWARD>(&g));
    check(prepare<UP>(&g));
    check(prepare<BACKWARD>(&g));
    check(prepare<DOWN_BACKWARD>(&g));
    check(prepare<WEIGHTS>(&g));
    *why = "no two of its multiprocessors can work together";
    return g.clusters > 0 ? new struct grouped(g) : nullptr;
}

void grouped_close(struct grouped *g) {
    delete g;
}

template <int PRODUCT>
static void launch(const struct grouped *g, const maps &m, const work &w, int multiprocessors,
                   cudaStream_t stream) {
    cudaLaunchAttribute cluster;
    cudaLaunchConfig_t c = config_of<PRODUCT>(&cluster);
    int clusters = g->clusters, budget = multiprocessors / CLUSTER;
    if (budget > 0 && budget < clusters) clusters = budget;
    assert(w.E >= 1 && w.E <= MOST_EXPERTS);
    c.gridDim = clusters * CLUSTER, c.stream = stream;
    check(cudaLaunchKernelEx(&c, run<PRODUCT>, m, w));
}

/* ---- maps ---- */

static size_t size(int n) {
    return static_cast<size_t>(n);
}

/* [rows, cols], boxes of 64 columns and `tall` rows */
static CUtensorMap by_rows(const struct grouped *g, const void *x, int rows, int cols, int tall) {
    return tensor_map(g->encode, element::bf16, x,
                      {{size(cols), 1, 64}, {size(rows), size(cols), tall}});
}

/* The same matrix MN-major: `blocks` blocks of 64 columns by 64 rows a box */
static CUtensorMap by_blocks(const struct grouped *g, const void *x, int rows, int cols,
                             int blocks) {
    return tensor_map(g->encode, element::bf16, x,
                      {{64, 1, 64}, {size(rows), size(cols), 64}, {size(cols) / 64, 64, blocks}});
}

/* w[E, N, K] for products that sum over N */
static CUtensorMap weights_mn(const struct grouped *g, const void *w, int E, int N, int K) {
    return tensor_map(g->encode, element::bf16, w,
                      {{64, 1, 64},
                       {size(N), size(K), 64},
                       {size(K) / 64, 64, 2},
                       {size(E), size(N) * size(K), 1}});
}

/* z[rows, 2F], a box of 16 rows of gate or of up */
static CUtensorMap gate_or_up(const struct grouped *g, const void *z, int rows, int F) {
    return tensor_map(g->encode, element::bf16, z,
                      {{size(F), 1, 64}, {2, size(F), 1}, {size(rows), 2 * size(F), 16}});
}

static work work_of(struct grouped_rows r) {
    work w = {};
    w.offsets = r.offsets, w.E = r.E, w.rows = r.rows;
    return w;
}

/* ---- the products ---- */

void grouped_up(struct grouped *g, void *z, void *h, const void *x, const void *up, const float *p,
                struct grouped_rows r, int D, int F, cudaStream_t stream) {
    assert(D % GROUPED_UNIT == 0 && F % GROUPED_UNIT == 0);
    maps m;
    work w = work_of(r);
    m.a = by_rows(g, x, r.rows, D, 64);
    m.b = tensor_map(g->encode, element::bf16, up,
                     {{size(D), 1, 64},
                      {size(F), size(D), TILE_COLS / 2},
                      {2, size(F) * size(D), 1},
                      {size(r.E), 2 * size(F) * size(D), 1}});
    m.c = m.z = gate_or_up(g, z, r.rows, F);
    m.h = by_rows(g, h, r.rows, F, 16);
    w.p = p, w.steps = D / TILE_DEPTH, w.tiles_wide = ceil_div(F, TILE_COLS / 2);
    launch<UP>(g, m, w, r.multiprocessors, stream);
}

void grouped_forward(struct grouped *g, void *y, const void *x, const void *weights,
                     struct grouped_rows r, int N, int K, cudaStream_t stream) {
    assert(N % GROUPED_UNIT == 0 && K % GROUPED_UNIT == 0);
    maps m;
    work w = work_of(r);
    m.a = by_rows(g, x, r.rows, K, 64);
    m.b = tensor_map(
        g->encode, element::bf16, weights,
        {{size(K), 1, 64}, {size(N), size(K), TILE_COLS / 2}, {size(r.E), size(N) * size(K), 1}});
    m.c = m.h = m.z = by_rows(g, y, r.rows, N, 16);
    w.steps = K / TILE_DEPTH, w.tiles_wide = ceil_div(N, +TILE_COLS);
    launch<FORWARD>(g, m, w, r.multiprocessors, stream);
}

void grouped_backward(struct grouped *g, void *dx, const void *dy, const void *weights,
                      struct grouped_rows r, int N, int K, cudaStream_t stream) {
    assert(N % GROUPED_UNIT == 0 && K % GROUPED_UNIT == 0);
    maps m;
    work w = work_of(r);
    m.a = by_rows(g, dy, r.rows, N, 64);
    m.b = weights_mn(g, weights, r.E, N, K);
    m.c = m.h = m.z = by_rows(g, dx, r.rows, K, 16);
    w.steps = N / TILE_DEPTH, w.tiles_wide = ceil_div(K, +TILE_COLS);
    launch<BACKWARD>(g, m, w, r.multiprocessors, stream);
}

void grouped_down_backward(struct grouped *g, void *dz, void *h, float *dp, void *parts,
                           const void *dy, const void *z, const void *down, const float *p,
                           struct grouped_rows r, int D, int F, cudaStream_t stream) {
    assert(D % GROUPED_UNIT == 0 && F % GROUPED_UNIT == 0);
    maps m;
    work w = work_of(r);
    m.a = by_rows(g, dy, r.rows, D, 64);
    m.b = weights_mn(g, down, r.E, D, F);
    m.c = gate_or_up(g, dz, r.rows, F), m.z = gate_or_up(g, z, r.rows, F);
    m.h = by_rows(g, h, r.rows, F, 16);
    w.p = p, w.dp = static_cast<float *>(parts);
    w.steps = D / TILE_DEPTH, w.tiles_wide = ceil_div(F, +TILE_COLS);
    launch<DOWN_BACKWARD>(g, m, w, r.multiprocessors, stream);
    if (r.rows == 0) return;
    sum_parts<<<ceil_div(r.rows, 128), 128, 0, stream>>>(dp, w.dp, r.offsets, r.E, r.rows,
                                                         w.tiles_wide);
    check(cudaGetLastError());
}

void grouped_weights(struct grouped *g, float *dw, const void *dy, const void *x,
                     struct grouped_rows r, int N, int K, int add, cudaStream_t stream) {
    assert(N % GROUPED_UNIT == 0 && K % GROUPED_UNIT == 0);
    maps m;
    work w = work_of(r);
    m.a = by_blocks(g, dy, r.rows, N, 1);
    m.b = by_blocks(g, x, r.rows, K, 2);
    m.c = tensor_map(g->encode, element::fp32, dw,
                     {{size(K), 1, 32}, {size(N), size(K), 16}, {size(r.E), size(N) * size(K), 1}});
    m.h = m.z = m.c;
    w.tiles_high = ceil_div(N, +TILE_ROWS), w.tiles_wide = ceil_div(K, +TILE_COLS), w.add = add;
    launch<WEIGHTS>(g, m, w, r.multiprocessors, stream);
}
