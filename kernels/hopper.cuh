/* The instructions of Hopper's tensor cores and of its bulk copies, one function each (PTX ISA 8,
 * "mbarrier", "cp.async.bulk.tensor", "wgmma"). Shared memory is addressed in its own window, 32
 * bits. For sm_90a alone: see HOPPER below.
 *
 * Descriptor of an operand in shared memory, swizzled by 128 bytes: the tile is a sequence of
 * atoms, 8 lines of 128 bytes.
 *   K-major, a line is 64 consecutive k of one row: 1024 bytes to the next 8 rows
 *   MN-major, a line is 64 consecutive rows (or columns) of one k: 1024 bytes to the next 8 k,
 *   8192 to the next 64 rows
 * In a warpgroup, lane l of warp w holds of the accumulator c[64, 256] at i = 4 j .. 4 j + 3: row
 * 16 w + l / 4, columns 8 j + 2 (l % 4) and one more; row 8 further, the same columns. */
#ifndef REGULON_KERNELS_HOPPER_CUH
#define REGULON_KERNELS_HOPPER_CUH
#include "mbarrier.cuh"
#include <cuda.h>

/* 1 where these instructions can be compiled. Kernels that use them are empty elsewhere. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HOPPER 1
#else
#define HOPPER 0
#endif

namespace hopper {

#if HOPPER

using namespace mbarrier;

/* ---- clusters and barriers ---- */

static __device__ __forceinline__ int cluster_rank() {
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return static_cast<int>(r);
}

static __device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\n\t"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}

/* Arrives at the barrier that lies at the same place in block `rank` of the cluster. What it orders
 * are reads by wgmma, done since wgmma_wait returned: .release.cluster would only add a fence of
 * the whole device to each arrival, which costs a fifth of the kernel's rate. */
static __device__ __forceinline__ void barrier_arrive(uint32_t barrier, int rank) {
    asm volatile("{\n\t.reg .b32 there;\n\t"
                 "mapa.shared::cluster.u32 there, %0, %1;\n\t"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" ::"r"(barrier),
                 "r"(rank)
                 : "memory");
}

static __device__ __forceinline__ bool barrier_passed(uint32_t barrier, uint32_t parity) {
    uint32_t passed;
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(passed)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return passed;
}

/* REGULON_KERNELS_WATCHDOG: a wait without end becomes an error. It takes registers. */
static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
#ifdef REGULON_KERNELS_WATCHDOG
    for (int tries = 0; !barrier_passed(barrier, parity); tries++)
        if (tries > 2000000) __trap();
#else
    while (!barrier_passed(barrier, parity)) {
    }
#endif
}

/* ---- bulk copies of boxes ---- */

/* Place of a box: coordinates, innermost first; those past the map's rank are ignored. */
struct place {
    int at[4];
};

/* A box to shared memory; the barrier gets its bytes, also those outside of the tensor, which
 * become zeros. */
template <int RANK>
static __device__ __forceinline__ void box_load(uint32_t to, const CUtensorMap *map,
                                                uint32_t barrier, place p) {
    static_assert(RANK >= 2 && RANK <= 4, "rank");
    if constexpr (RANK == 2)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::"
                     "bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                     "l"(map), "r"(barrier), "r"(p.at[0]), "r"(p.at[1])
                     : "memory");
    else if constexpr (RANK == 3)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::"
                     "bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                     "l"(map), "r"(barrier), "r"(p.at[0]), "r"(p.at[1]), "r"(p.at[2])
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::"
                     "bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                     "l"(map), "r"(barrier), "r"(p.at[0]), "r"(p.at[1]), "r"(p.at[2]), "r"(p.at[3])
                     : "memory");
}

/* The same to both blocks of the cluster; each one's barrier gets the bytes. */
template <int RANK>
static __device__ __forceinline__ void box_load_both(uint32_t to, const CUtensorMap *map,
                                                     uint32_t barrier, place p) {
    static_assert(RANK >= 2 && RANK <= 4, "rank");
    const uint16_t both = 3;
    if constexpr (RANK == 2)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::"
                     "bytes.multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(to),
                     "l"(map), "r"(barrier), "h"(both), "r"(p.at[0]), "r"(p.at[1])
                     : "memory");
    else if constexpr (RANK == 3)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::"
                     "bytes.multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(to),
                     "l"(map), "r"(barrier), "h"(both), "r"(p.at[0]), "r"(p.at[1]), "r"(p.at[2])
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::"
                     "bytes.multicast::cluster [%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(to),
                     "l"(map), "r"(barrier), "h"(both), "r"(p.at[0]), "r"(p.at[1]), "r"(p.at[2]),
                     "r"(p.at[3])
                     : "memory");
}

/* What lies outside of the tensor is not written. */
template <int RANK>
static __device__ __forceinline__ void box_store(const CUtensorMap *map, uint32_t from, place p) {
    static_assert(RANK >= 2 && RANK <= 3, "rank");
    if constexpr (RANK == 2)
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
                     "[%0, {%2, %3}], [%1];" ::"l"(map),
                     "r"(from), "r"(p.at[0]), "r"(p.at[1])
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
                     "[%0, {%2, %3, %4}], [%1];" ::"l"(map),
                     "r"(from), "r"(p.at[0]), "r"(p.at[1]), "r"(p.at[2])
                     : "memory");
}

/* Adds to what is there, in the L2 cache. */
static __device__ __forceinline__ void box_add(const CUtensorMap *map, uint32_t from, place p) {
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group "
                 "[%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(from), "r"(p.at[0]), "r"(p.at[1]), "r"(p.at[2])
                 : "memory");
}

/* This thread's stores so far are a group. */
static __device__ __forceinline__ void stores_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until at most N of its groups still read shared memory. */
template <int N> static __device__ __forceinline__ void stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* Until all of them are done. */
static __device__ __forceinline__ void stores_done() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* This thread's writes to shared memory become visible to bulk copies. */
static __device__ __forceinline__ void writes_to_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- registers and fragments ---- */

template <int N> static __device__ __forceinline__ void registers_up_to() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> static __device__ __forceinline__ void registers_down_to() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* Four 8x8 matrices of BF16; lane l gives the address of row l % 8 of matrix l / 8. */
static __device__ __forceinline__ void store_matrices(uint32_t row, uint32_t a, uint32_t b,
                                                      uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

static __device__ __forceinline__ void store_pair(uint32_t at, uint32_t a, uint32_t b) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at), "r"(a), "r"(b) : "memory");
}

/* ---- products ---- */

static __device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most N groups are under way. */
template <int N> static __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Descriptor of a tile at `address`: see the head of this file. */
static __device__ __forceinline__ uint64_t descriptor(bool mn_major, uint32_t address) {
    const uint64_t swizzle_128 = 1ull << 62, stride = 1024 >> 4, leading = mn_major ? 8192 >> 4 : 1;
    return swizzle_128 | stride << 32 | leading << 16 | (address & 0x3ffff) >> 4;
}

/* Distance in descriptors' units from 16 of k to the next. */
static __device__ constexpr uint32_t k16(bool mn_major) {
    return (mn_major ? 16 * 128 : 16 * 2) >> 4;
}

/* c[64, 256] = a[64, 16] b[16, 256] (+ c), FP32 from BF16. A_MN, B_MN: the operand is MN-major. */
#define ACC8(c, i)                                                                              \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
        "+f"(c[i + 6]), "+f"(c[i + 7])
#define ACC32(c, i) ACC8(c, i), ACC8(c, i + 8), ACC8(c, i + 16), ACC8(c, i + 24)
template <int A_MN, int B_MN>
static __device__ __forceinline__ void wgmma_64x256x16(float (&c)[128], uint64_t a, uint64_t b,
                                                       bool add) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %130, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "
        "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, "
        "%125, %126, %127}, %128, %129, p, 1, 1, %131, %132;\n\t}"
        : ACC32(c, 0), ACC32(c, 32), ACC32(c, 64), ACC32(c, 96)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(A_MN), "n"(B_MN));
}

/* c[64, 128] = a[64, 32] b[32, 128] (+ c), FP32 from E4M3, both K-major. Inside, a sum of 32 keeps
 * about 14 bits: what is added up should not be deep. */
static __device__ __forceinline__ void wgmma_64x128x32(float (&c)[64], uint64_t a, uint64_t b,
                                                       bool add) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, p, 1, 1;\n\t}"
        : ACC32(c, 0), ACC32(c, 32)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

/* What the compiler knows of c stays on this side: wgmma writes it behind its back. */
static __device__ __forceinline__ void pin(float (&c)[64]) {
    asm volatile("" : ACC32(c, 0), ACC32(c, 32)::"memory");
}
#undef ACC32
#undef ACC8

#endif
} // namespace hopper
#endif
