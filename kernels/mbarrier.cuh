/* Barriers in shared memory that count the bytes of bulk copies, as Hopper and Blackwell have them
 * (PTX ISA 8, "mbarrier"), at addresses in its own window, 32 bits. */
#ifndef REGULON_KERNELS_MBARRIER_CUH
#define REGULON_KERNELS_MBARRIER_CUH
#include <stdint.h>

namespace mbarrier {

static __device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

/* The initialisations become visible to the cluster and to bulk copies. */
static __device__ __forceinline__ void barrier_init_done() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives, and announces the bytes of bulk copies to come. */
static __device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

} // namespace mbarrier
#endif
