/* The instructions of tensor-core kernels for sm_80 and later, one function each: asynchronous
 * copies to shared memory, matrix fragments out of it, and the BF16 product m16n8k16 (PTX ISA,
 * "Matrix Fragments for mma.m16n8k16"). Shared memory is addressed in its own window, 32 bits.
 *
 * In a warp, lane l holds of an accumulator c[16, 8] c[0], c[1]: row l / 4, columns 2 (l % 4) and
 * one more; c[2], c[3]: row l / 4 + 8, the same columns. */
#ifndef REGULON_KERNELS_MMA_CUH
#define REGULON_KERNELS_MMA_CUH
#include <stdint.h>

static __device__ __forceinline__ uint32_t shared_address(const void *x) {
    return (uint32_t)__cvta_generic_to_shared(x);
}

/* Copies 16 bytes, or writes 16 zero bytes and reads nothing. */
static __device__ __forceinline__ void copy16_async(uint32_t to, const void *from, bool zero) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(zero ? 0 : 16)
                 : "memory");
}

/* Until this thread's copies have arrived. */
static __device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Four 8x8 matrices; lane l gives the address of row l % 8 of matrix l / 8. */
static __device__ __forceinline__ void load_matrices(uint32_t (&x)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row)
                 : "memory");
}

static __device__ __forceinline__ void load_matrices_transposed(uint32_t (&x)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row)
                 : "memory");
}

/* c[16, 8] += a[16, 16] b[16, 8], FP32 += BF16 BF16 */
static __device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 2^x by the special function unit, relative error 2^-22; 2^-inf = 0 */
static __device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif
