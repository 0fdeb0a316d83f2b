/* Rows between tokens and the experts of all ranks, through memory that the ranks' GPUs reach. A
 * token travels once to a rank, whatever the number of its experts there; in between lie meetings
 * (peers.h), which the caller asks for. Letters, ids, row_of and chains as in peer_rows.h; D a
 * multiple of 8, A at most PEER_CHOICES; `blocks` thread blocks of up to 1024 threads. */
#ifndef REGULON_KERNELS_PEER_MOVE_H
#define REGULON_KERNELS_PEER_MOVE_H
#include "peers.h"
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif
/* x[N, D] into the rows of this rank's experts that have them, and into the first of a token's rows
 * on every other rank. rows: [R, D] on each, which begin at row base[rank], on the device; NULL: at
 * 0. After a meeting peer_repeat does the rest. */
void peer_push(enum real t, struct peers rows, const int32_t *base, const void *x,
               const int32_t *row_of, const int32_t *ids, int N, int E, int A, int D, int blocks,
               cudaStream_t stream);

/* On this rank, where the rows begin at base[0]: the first rows of chains into the others, zeros
 * into the rows that pad. */
void peer_repeat(enum real t, void *rows, const int32_t *base, const int32_t *chain,
                 const int32_t *offsets, const int32_t *ends, int n_local, int D,
                 cudaStream_t stream);

/* The same two with rows in eight bits on their way (low_row.h) at the end of the row that they go
 * to; this rank's own get what those stand for, as low_rows.h has it. D is 16384 at most. */
void peer_push_low(enum real t, struct peers rows, const int32_t *base, const void *x,
                   const int32_t *row_of, const int32_t *ids, int N, int E, int A, int D,
                   int blocks, cudaStream_t stream);
void peer_repeat_low(enum real t, void *rows, const int32_t *base, const int32_t *chain,
                     const int32_t *offsets, const int32_t *ends, int n_local, int D,
                     cudaStream_t stream);

/* On this rank: the sums of chains, in FP32 and in their order, into the first rows; the others
 * keep what they have. After a meeting peer_pull does the rest. */
void peer_sum(enum real t, void *rows, const int32_t *chain, const int32_t *offsets, int n_local,
              int D, cudaStream_t stream);

/* out[N, D] = the sum over a token's rows on each rank, rounded to the compute type, summed over
 * the ranks in FP32. */
void peer_pull(enum real t, void *out, struct peers rows, const int32_t *row_of, const int32_t *ids,
               int N, int E, int A, int D, int blocks, cudaStream_t stream);

/* out[N, A] = values[row_of] on the choice's rank; values: [R] on each. */
void peer_pull_values(float *out, struct peers values, const int32_t *row_of, const int32_t *ids,
                      int N, int E, int A, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
