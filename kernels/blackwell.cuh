/* The instructions of Blackwell's tensor cores that a product of MXFP8 takes, one function each
 * (PTX ISA 8.6, "tcgen05"), and what of barriers and bulk copies goes with them. For sm_100a alone:
 * see BLACKWELL below. Compiled, never run.
 *
 * Tensor memory has 128 lanes of 512 columns, 32 bits each; an address is lane << 16 | column. A
 * result c[128, 256] is a row a lane, a column a column. The scales of 128 rows and 128 values
 * along the sum, a tile of mxfp8_scales.h, are four columns: lane l of column c has the four scales
 * of row 32 c + l, and all four quarters of the lanes have the same. */
#ifndef REGULON_KERNELS_BLACKWELL_CUH
#define REGULON_KERNELS_BLACKWELL_CUH
#include "mbarrier.cuh"
#include <cuda.h>

/* 1 where these instructions can be compiled. Kernels that use them are empty elsewhere. */
#if defined(__CUDA_ARCH_FEAT_SM100_ALL)
#define BLACKWELL 1
#else
#define BLACKWELL 0
#endif

namespace blackwell {

#if BLACKWELL

using namespace mbarrier;

/* ---- barriers ---- */

static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t passed;
    do {
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(passed)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!passed);
}

/* ---- bulk copies to shared memory; the barrier gets their bytes ---- */

/* A box of a map of two dimensions, from column x of row y on. */
static __device__ __forceinline__ void box_load(uint32_t to, const CUtensorMap *map,
                                                uint32_t barrier, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::"
                 "bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y)
                 : "memory");
}

static __device__ __forceinline__ void bytes_load(uint32_t to, const void *from, int bytes,
                                                  uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* ---- tensor memory ---- */

/* By a whole warp: columns, a power of two from 32 on; their address goes to shared memory. No
 * other allocation follows. */
template <int COLUMNS> static __device__ __forceinline__ void tensor_alloc(uint32_t address) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n\t"
                 "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::"r"(address),
                 "n"(COLUMNS)
                 : "memory");
}

template <int COLUMNS> static __device__ __forceinline__ void tensor_free(uint32_t at) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(at), "n"(COLUMNS));
}

/* What this thread, and those it is in step with, did of tcgen05 comes before what they do behind
 * the next barrier; and the other side of it. */
static __device__ __forceinline__ void before_barrier() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

static __device__ __forceinline__ void after_barrier() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

/* 32 columns of the lanes of this warp, a lane each; by the whole warp. */
static __device__ __forceinline__ void tensor_load(float (&v)[32], uint32_t at) {
    uint32_t r[32];
#define R8(i)                                                                                   \
    "=r"(r[i]), "=r"(r[i + 1]), "=r"(r[i + 2]), "=r"(r[i + 3]), "=r"(r[i + 4]), "=r"(r[i + 5]), \
        "=r"(r[i + 6]), "=r"(r[i + 7])
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "[%32];\n\t"
                 "tcgen05.wait::ld.sync.aligned;"
                 : R8(0), R8(8), R8(16), R8(24)
                 : "r"(at)
                 : "memory");
#undef R8
#pragma unroll
    for (int i = 0; i < 32; i++) v[i] = __uint_as_float(r[i]);
}

/* ---- products: by one thread, in the order in which it asks for them ---- */

/* Descriptor of an operand in shared memory, lines of 128 bytes, swizzled: 1024 bytes to the next 8
 * rows. 32 values further along the sum it is 32 bytes more, in 16ths. */
static __device__ __forceinline__ uint64_t operand(uint32_t address) {
    const uint64_t swizzle_128 = 2ull << 61, version = 1ull << 46, stride = 1024 >> 4;
    return swizzle_128 | version | stride << 32 | (address & 0x3ffff) >> 4;
}
enum { FURTHER = 32 >> 4 };

/* A tile of scales in shared memory becomes four columns. 16 bytes a line, 128 to the next 8. */
static __device__ __forceinline__ void scales_copy(uint32_t to, uint32_t address) {
    const uint64_t version = 1ull << 46, stride = 128 >> 4,
                   tile = version | stride << 32 | (address & 0x3ffff) >> 4;
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(tile)
                 : "memory");
}

/* c[128, 256] = a[128, 32] b[256, 32]^T (+ c), FP32 from E4M3 with the scales `which` (0 to 3) of
 * their columns. Of the instruction's descriptor: both K-major and E4M3 (0), scales E8M0. */
static __device__ __forceinline__ void multiply(uint32_t c, uint64_t a, uint64_t b,
                                                uint32_t a_scales, uint32_t b_scales, int which,
                                                bool add) {
    const uint32_t what = static_cast<uint32_t>(which) << 4 | (256 >> 3) << 17 | 1 << 23 |
                          (128 >> 4) << 24 | static_cast<uint32_t>(which) << 29;
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %6, 0;\n\t"
                 "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X "
                 "[%0], %1, %2, %3, [%4], [%5], p;\n\t}" ::"r"(c),
                 "l"(a), "l"(b), "r"(what), "r"(a_scales), "r"(b_scales), "r"(static_cast<int>(add))
                 : "memory");
}

/* The barrier is arrived at when all that this thread has asked for so far is done. */
static __device__ __forceinline__ void arrive_when_done(uint32_t barrier) {
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
        : "memory");
}

#endif
} // namespace blackwell
#endif
