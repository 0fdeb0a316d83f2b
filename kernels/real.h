/* The type of weights and activations on the device. All host functions of this folder take it
 * first, then device pointers, sizes, and last the stream they work on; they only enqueue. Matrices
 * begin at multiples of 16 bytes. BF16 is what models are trained in; FP32 is for debugging and for
 * tests against the CPU backend. Sums are FP32 or FP64, in an order that does not depend on the
 * run: no floating-point atomics. A call that fails ends in kernel_failed (check.h). */
#ifndef REGULON_KERNELS_REAL_H
#define REGULON_KERNELS_REAL_H
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

enum real { REAL_BF16, REAL_FP32 };

static inline size_t real_bytes(enum real t) {
    return t == REAL_BF16 ? 2 : 4;
}
#endif
