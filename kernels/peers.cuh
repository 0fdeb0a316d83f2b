/* The meeting within a kernel, and how what others wrote is read. */
#ifndef REGULON_KERNELS_PEERS_CUH
#define REGULON_KERNELS_PEERS_CUH
#include "peers.h"
#include "vector.cuh"

static __device__ __forceinline__ peer_board *board_of(const peers &boards, int rank) {
    return static_cast<peer_board *>(boards.at[rank]);
}

/* Past the first-level cache, which does not see others' writes. */
static __device__ __forceinline__ int32_t read_afresh(const int32_t *p) {
    return *static_cast<const volatile int32_t *>(p);
}

/* By all threads of the one block, at least boards.n of them. What they wrote to others is there
 * when those leave. */
static __device__ __forceinline__ void meet(const peers &boards) {
    peer_board *mine = board_of(boards, boards.me);
    __shared__ uint32_t now;
    if (threadIdx.x == 0) now = ++mine->met;
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x < boards.n) {
        uint32_t *there = &board_of(boards, threadIdx.x)->came[boards.me], came;
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(there), "r"(now) : "memory");
        do
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                         : "=r"(came)
                         : "l"(&mine->came[threadIdx.x])
                         : "memory");
        while (static_cast<int32_t>(came - now) < 0);
    }
    __syncthreads();
}
#endif
