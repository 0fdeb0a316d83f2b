/* A block of threads takes 128 rows of an expert and 128 columns of h, and so 128 of gate and the
 * 128 of up that belong to them: b of its product is both, 256 rows of weights. Thread 0 loads a
 * stage of 128 along the sum as soon as it is empty, thread 32 asks the tensor cores for its four
 * products; then each thread has a row of the result, gate and up of a column beside each other,
 * and makes z, h, and the codes and scale of each 32 of h, a tile of scales for the block.
 *
 * Compiled for sm_100a, never run: there was no such GPU. What it is made of, descriptors and
 * tensor memory, is in blackwell.cuh. */
#include "mxfp8_up.h"
#include "blackwell.cuh"
#include "mxfp8_block.cuh"
#include "probe.cuh"
#include "swiglu.cuh"
#include "tensor_map.cuh"
#include "vector.cuh"

struct mxfp8_up {
    encode_tensor_map encode;
};

namespace {

enum {
    SIDE = MXFP8_TILE_ROWS, /* rows, columns of h, and of the sum a stage */
    STAGES = 4,
    THREADS = 128,
    BOX = SIDE * SIDE, /* bytes */
    STAGE = 3 * BOX + 3 * MXFP8_TILE_BYTES,
    /* columns of tensor memory: the result, scales of a, scales of b */
    A_SCALES = 2 * SIDE,
    B_SCALES = A_SCALES + 4,
    COLUMNS = 512
};

struct __align__(1024) shared {
    uint8_t a[STAGES][BOX], b[STAGES][2][BOX];   /* gate, up */
    uint8_t scales[STAGES][3][MXFP8_TILE_BYTES]; /* of a, gate, up */
    uint64_t full[STAGES], empty[STAGES], done;
    uint32_t tensor_memory;
};

struct operands {
    bf16 *z;
    mxfp8_matrix h;
    const uint8_t *x_scales, *up_scales;
    const float *p;
    const int32_t *offsets;
    int D, F;
};

__global__ void probe(int *can) {
    *can = BLACKWELL;
}

#if BLACKWELL
using namespace blackwell;

/* Where this block's operands begin. */
struct place {
    int row, col; /* of the rows, of h */
    int gate, up; /* rows of the weights of all experts */
    int n_stages;
    size_t x, gate8, up8; /* tiles of scales */
};

__device__ place place_of(const operands &o) {
    place p;
    int e = 0;
    p.row = blockIdx.y * SIDE, p.col = blockIdx.x * SIDE;
    while (o.offsets[e + 1] <= p.row) e++;
    p.gate = e * 2 * o.F + p.col, p.up = p.gate + o.F;
    p.n_stages = o.D / SIDE;
    const size_t wide = p.n_stages;
    p.x = blockIdx.y * wide, p.gate8 = p.gate / SIDE * wide, p.up8 = p.up / SIDE * wide;
    return p;
}

__device__ void load(shared &s, const place &p, const operands &o, const CUtensorMap *x,
                     const CUtensorMap *up) {
    for (int k = 0; k < p.n_stages; k++) {
        const int i = k % STAGES;
        const uint32_t full = shared_address(&s.full[i]);
        if (k >= STAGES) barrier_wait(shared_address(&s.empty[i]), (k / STAGES - 1) % 2);
        barrier_expect(full, STAGE);
        box_load(shared_address(s.a[i]), x, full, k * SIDE, p.row);
        box_load(shared_address(s.b[i][0]), up, full, k * SIDE, p.gate);
        box_load(shared_address(s.b[i][1]), up, full, k * SIDE, p.up);
        const uint8_t *const tiles[] = {o.x_scales + (p.x + k) * MXFP8_TILE_BYTES,
                                        o.up_scales + (p.gate8 + k) * MXFP8_TILE_BYTES,
                                        o.up_scales + (p.up8 + k) * MXFP8_TILE_BYTES};
        for (int j = 0; j < 3; j++)
            bytes_load(shared_address(s.scales[i][j]), tiles[j], MXFP8_TILE_BYTES, full);
    }
}

__device__ void ask_products(shared &s, const place &p) {
    const uint32_t c = s.tensor_memory, a_scales = c + A_SCALES, b_scales = c + B_SCALES;
    for (int k = 0; k < p.n_stages; k++) {
        const int i = k % STAGES;
        barrier_wait(shared_address(&s.full[i]), k / STAGES % 2);
        after_barrier();
        scales_copy(a_scales, shared_address(s.scales[i][0]));
        scales_copy(b_scales, shared_address(s.scales[i][1]));
        scales_copy(b_scales + 4, shared_address(s.scales[i][2]));
        const uint64_t a = operand(shared_address(s.a[i])), b = operand(shared_address(s.b[i]));
        for (int j = 0; j < MXFP8_TILE_BLOCKS; j++)
            multiply(c, a + j * FURTHER, b + j * FURTHER, a_scales, b_scales, j, k + j > 0);
        arrive_when_done(shared_address(&s.empty[i]));
    }
    arrive_when_done(shared_address(&s.done));
}

/* 32 values to z as BF16, and as it then has them. */
__device__ __forceinline__ void keep(bf16 *to, float (&v)[32]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t pairs[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            pairs[j] = pack_pair(v[8 * i + 2 * j], v[8 * i + 2 * j + 1]);
            unpack_pair(v + 8 * i + 2 * j, pairs[j]);
        }
        reinterpret_cast<uint4 *>(to)[i] = {pairs[0], pairs[1], pairs[2], pairs[3]};
    }
}

/* The row of this thread. */
__device__ void finish(const shared &s, const place &p, const operands &o) {
    const int line = threadIdx.x;
    const size_t row = p.row + line, F = o.F;
    const uint32_t c = s.tensor_memory + (static_cast<uint32_t>(line / 32 * 32) << 16);
    const float factor = o.p[row];
    uint8_t *const scales = o.h.scales + (blockIdx.y * (F / SIDE) + blockIdx.x) * MXFP8_TILE_BYTES;
    for (int j = 0; j < MXFP8_TILE_BLOCKS; j++) {
        const int col = p.col + j * MXFP8_BLOCK;
        float gate[32], up[32];
        tensor_load(gate, c + j * MXFP8_BLOCK);
        tensor_load(up, c + SIDE + j * MXFP8_BLOCK);
        keep(o.z + row * 2 * F + col, gate);
        keep(o.z + row * 2 * F + F + col, up);
#pragma unroll
        for (int i = 0; i < 32; i++) gate[i] = swiglu(gate[i], up[i], factor);
        const mxfp8_codes_of_block b = mxfp8_pack_block(gate);
        mxfp8_store_codes(o.h.codes + row * F + col, b);
        scales[mxfp8_scale_at(line, j, SIDE)] = b.scale;
    }
}
#endif

__global__ void __launch_bounds__(THREADS, 1)
    of_tiles(const operands o, const __grid_constant__ CUtensorMap x,
             const __grid_constant__ CUtensorMap up) {
#if BLACKWELL
    extern __shared__ __align__(1024) uint8_t memory[];
    shared &s = *reinterpret_cast<shared *>(memory);
    const place p = place_of(o);
    const int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(shared_address(&s.full[i]), 1);
            barrier_init(shared_address(&s.empty[i]), 1);
        }
        barrier_init(shared_address(&s.done), 1);
        barrier_init_done();
    }
    if (warp == 1) tensor_alloc<COLUMNS>(shared_address(&s.tensor_memory));
    before_barrier();
    __syncthreads();
    after_barrier();
    if (threadIdx.x == 0) load(s, p, o, &x, &up);
    if (threadIdx.x == 32) ask_products(s, p);
    __syncwarp();
    barrier_wait(shared_address(&s.done), 0);
    after_barrier();
    __syncwarp();
    finish(s, p, o);
    before_barrier();
    __syncthreads();
    after_barrier();
    if (warp == 1) tensor_free<COLUMNS>(s.tensor_memory);
#else
    (void)o, (void)x, (void)up;
#endif
}

} // namespace

struct mxfp8_up *mxfp8_up_open(const char **why) {
    int device = 0, major = 0, minor = 0;
    struct mxfp8_up u = {};
    check(cudaGetDevice(&device));
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    *why = "it needs compute capability 10.0";
    if (major != 10 || minor != 0) return nullptr;
    *why = "this program was not compiled for sm_100a";
    if (!probed(probe)) return nullptr;
    *why = "the driver has no cuTensorMapEncodeTiled";
    u.encode = tensor_map_encoder();
    if (!u.encode) return nullptr;
    check(cudaFuncSetAttribute(of_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(sizeof(shared))));
    return new struct mxfp8_up(u);
}

void mxfp8_up_close(struct mxfp8_up *u) {
    delete u;
}

void mxfp8_up_run(struct mxfp8_up *u, void *z, struct mxfp8_matrix h, struct mxfp8_matrix x,
                  struct mxfp8_matrix up, const float *p, const int32_t *offsets, int E, int rows,
                  int D, int F, cudaStream_t stream) {
    assert(rows % SIDE == 0 && D % SIDE == 0 && F % SIDE == 0 && aligned16(z));
    if (rows == 0) return;
    const size_t depth = D, n_rows = rows, n_weights = static_cast<size_t>(E) * 2 * F;
    const CUtensorMap x_map = tensor_map(u->encode, element::byte, x.codes,
                                         {{depth, 1, SIDE}, {n_rows, depth, SIDE}}),
                      up_map = tensor_map(u->encode, element::byte, up.codes,
                                          {{depth, 1, SIDE}, {n_weights, depth, SIDE}});
    const operands o = {static_cast<bf16 *>(z), h, x.scales, up.scales, p, offsets, D, F};
    of_tiles<<<dim3(F / SIDE, rows / SIDE), THREADS, sizeof(shared), stream>>>(o, x_map, up_map);
    check(cudaGetLastError());
}
