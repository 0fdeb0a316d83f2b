/* Expert parallelism over memory that the ranks' GPUs reach directly: the same array on every rank
 * of the group, as this process sees it, and the meetings at which the ranks wait for each other on
 * the device. */
#ifndef REGULON_KERNELS_PEERS_H
#define REGULON_KERNELS_PEERS_H
#include "scratch.h"
#include <cuda_runtime.h>
#ifdef __cplusplus
extern "C" {
#endif
struct peers {
    void *at[PEERS]; /* at[me]: this rank's own */
    int n, me;
};

/* A rank's board, zero at the start. Others write to it; `met` is its owner's. */
struct peer_board {
    uint32_t came[PEERS];             /* by rank: how many meetings it has come to */
    uint32_t met;                     /* meetings that this rank has come to */
    int32_t counts[PEERS][SORT_KEYS]; /* by rank: its choices of each expert */
};

/* Waits until every rank has called it as often: what a rank did on its stream before is then there
 * for all. boards: of struct peer_board. One block. */
void peers_meet(struct peers boards, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
