/* From the tokens' experts to rows on the ranks that hold them. */
#ifndef REGULON_KERNELS_PEER_ROWS_H
#define REGULON_KERNELS_PEER_ROWS_H
#include "peers.h"
#include "stash.h"
#ifdef __cplusplus
extern "C" {
#endif
/* The mark of a chain of one row. */
#define PEER_LONE INT32_MIN

/* What a rank is told of its rows, in memory that all ranks reach. */
struct peer_marks {
    struct peers at; /* float p[rows], then int32_t chain[rows] */
    size_t rows;
};

/* Where this rank's choices stand among themselves. */
struct peer_order {
    int32_t *begins;    /* [E + 1] by expert, first of its choices */
    int32_t *place_of;  /* [N, A] place of a choice */
    int32_t *choice_at; /* [N A] choice at a place */
    int32_t *shift;     /* [E] from places to rows on the expert's rank */
};

/* Rank r of n holds experts r E / n .. (r + 1) E / n - 1. Its rows lie by expert, then by the rank
 * that they come from, then by token; an expert's begin at a multiple of unit, offsets[E / n + 1]
 * and ends[E / n] as in route_rows.h. row_of[N, A]: the row of each choice on its expert's rank,
 * ids[N, A] ascending. There p[row] is the choice's, 0 where the row pads; and rows that one token
 * of another rank has there are chained by expert: chain[row] is the next one + 1, negative in all
 * but the first, 0 in the last; PEER_LONE where there is but one. In rows of this rank's own tokens
 * it is 0. sent[n] are added to: tokens that went to each rank. All on the device; the ranks wait
 * for each other, and what is written to others is there after their next meeting. scratch:
 * sort_scratch() bytes. N may be 0. Row numbers count from where the layer's rows begin: stash says
 * where that is on each rank. */
void peer_rows(int32_t *offsets, int32_t *ends, int32_t *row_of, unsigned long long *sent,
               struct stash_place stash, struct peer_marks marks, struct peer_order order,
               struct peers boards, const int32_t *ids, const float *p, void *scratch, int N, int E,
               int A, int unit, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
