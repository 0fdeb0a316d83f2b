/* The exchange of tokens, within itself: one rank, peer memory (cuda_peer.c) or NCCL
 * (cuda_travel.c). */
#ifndef REGULON_BACKEND_CUDA_EXCHANGE_H
#define REGULON_BACKEND_CUDA_EXCHANGE_H
#include "backend/cuda.h"
#include "stash.h"

struct moe {
    struct moe_shape s;
    int n_ranks, n_local;
    size_t rows;              /* R at most */
    int32_t *offsets, *ends;  /* [n_local + 1], [n_local]: see route_rows.h */
    int32_t *row_of;          /* [N, A] row of each choice, with peer memory on its expert's rank;
                                 through NCCL [arrivals, A] */
    float *row_p;             /* [R]; with peer memory others write it, and int32_t chain[R] behind
                                 it: see peer_rows.h */
    const int32_t *ids;       /* [N, A] of the routing; borrowed; with peer memory */
    struct stash_place stash; /* of all ranks with peer memory, else of this one */
    int32_t *host_offsets;    /* offsets in pinned memory; NULL with the grouped kernels */
    /* through NCCL, see route_ranks.h */
    int32_t *first, *copy_of, *place_of;
    int *sent_first, *got_first; /* [n_ranks + 1] on the host: copies and arrivals of each rank */
};

/* Each as in the backend's table, for its way. Dispatch leaves offsets, ends, row_of and row_p. */
struct cuda_ways {
    void (*dispatch)(struct backend *be, struct moe *m, real_t *rows, const real_t *x,
                     const struct routing *r, int N);
    void (*spread)(struct backend *be, struct moe *m, real_t *rows, const real_t *x, int N);
    void (*gather)(struct backend *be, struct moe *m, real_t *out, const real_t *rows, int N);
    void (*gather_p)(struct backend *be, struct moe *m, float *dp, const float *dp_rows, int N);
};
extern const struct cuda_ways cuda_travel_ways, cuda_peer_ways;

/* The place that m's rows are about to get. */
struct stash_place cuda_stash_place(const struct backend *be, const struct moe *m);

/* Where m's rows begin on each rank (peer memory), and on this one; NULL: at 0. */
static inline const int32_t *cuda_stash_bases(const struct moe *m) {
    return m->stash.base ? m->stash.base + 1 : NULL;
}
const int32_t *cuda_stash_base(const struct backend *be, const struct moe *m);

/* Room for what travels through NCCL, for what is reserved. */
void cuda_travel_reserve(struct backend *be);
void cuda_travel_close(struct backend *be);

/* Peer memory, where cuda_peer_serves. NULL: s->peer is there; else why not, to be freed by the
 * caller. Collective over world. */
char *cuda_peer_open(struct backend *be);
void cuda_peer_reserve(struct backend *be);
void cuda_peer_close(struct backend *be);
/* Adds to rows[ep_size] the tokens that went to each rank, and forgets them. */
void cuda_peer_sent(struct backend *be, uint64_t *rows);
#endif
