/* Collectives through NCCL, on the main stream or the one beside it, each with communicators of its
 * own; those beside it go another way where there is one (cuda_pull.c). Without NCCL only a group
 * of one rank is served: cuda_refusal says so at the start. */
#include "config.h"
#include "backend/cuda.h"
#include "backend/cuda_pull.h"
#include "base/memory.h"
#include <assert.h>
#include <stdlib.h>
#ifdef HAVE_NCCL
#include <nccl.h>

#define nccl_check(call)                                                                     \
    do {                                                                                     \
        ncclResult_t status_ = (call);                                                       \
        if (status_ != ncclSuccess) die("NCCL: %s: %s", #call, ncclGetErrorString(status_)); \
    } while (0)

struct cuda_comm {
    ncclComm_t world, dp, ep;
    ncclComm_t world_beside, dp_beside; /* after cuda_collectives_beside; NULL: dp is world */
};

/* NCCL's communicator of the same ranks, with so many thread blocks at most (0: as NCCL likes).
 * Collective over comm. */
static ncclComm_t comm_open(MPI_Comm comm, int blocks) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t c;
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (size == 1) return NULL;
    if (rank == 0) nccl_check(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, comm);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 17, 0)
    if (blocks > 0) config.maxCTAs = blocks;
#else
    (void)blocks;
#endif
    nccl_check(ncclCommInitRankConfig(&c, size, id, rank, &config));
    return c;
}

/* NULL for a group of one. */
static ncclComm_t of(const struct backend *be, MPI_Comm comm) {
    const struct cuda_state *s = cuda_state(be);
    const struct cuda_comm *c = s->comm;
    const struct grid *g = be->grid;
    int aside = s->stream != s->main;
    assert(comm == g->world || comm == g->dp || comm == g->ep);
    assert(!aside || !s->pull); /* what is asked for beside lies in a window */
    assert(!aside || comm != g->ep || g->ep_size == 1);
    if (comm == g->world) return aside ? c->world_beside : c->world;
    if (comm == g->dp && aside) return g->ep_size == 1 ? c->world_beside : c->dp_beside;
    if (comm == g->dp) return c->dp;
    return c->ep;
}

static void all_reduce_of(struct backend *be, MPI_Comm comm, void *x, size_t n, ncclDataType_t t) {
    ncclComm_t c = of(be, comm);
    if (c && n) nccl_check(ncclAllReduce(x, x, n, t, ncclSum, c, cuda_state(be)->stream));
}

static void all_reduce(struct backend *be, MPI_Comm comm, float *x, size_t n) {
    if (cuda_pulls(be, x))
        cuda_pull_sum(be, comm, x, n);
    else
        all_reduce_of(be, comm, x, n, ncclFloat32);
}

static void sum_uint32(struct backend *be, MPI_Comm comm, uint32_t *x, size_t n) {
    all_reduce_of(be, comm, x, n, ncclUint32);
}

static void sum_double(struct backend *be, MPI_Comm comm, double *x, size_t n) {
    all_reduce_of(be, comm, x, n, ncclFloat64);
}

static int all_equal(const size_t *counts, int n) {
    int equal = 1;
    for (int i = 1; i < n; i++) equal &= counts[i] == counts[0];
    return equal;
}

/* Shares of unequal size: one reduction to each rank, all in one group. */
static void reduce_scatter(struct backend *be, MPI_Comm comm, float *x, const size_t *counts) {
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (cuda_pulls(be, x)) {
        cuda_pull_add(be, comm, x + backend_first(counts, rank), x, counts, /*without_own=*/1);
        return;
    }
    ncclComm_t c = of(be, comm);
    if (!c) return;
    if (all_equal(counts, size)) {
        nccl_check(ncclReduceScatter(x, x + (size_t)rank * counts[0], counts[0], ncclFloat32,
                                     ncclSum, c, cuda_state(be)->stream));
        return;
    }
    nccl_check(ncclGroupStart());
    for (int r = 0; r < size; x += counts[r], r++)
        if (counts[r])
            nccl_check(
                ncclReduce(x, x, counts[r], ncclFloat32, ncclSum, r, c, cuda_state(be)->stream));
    nccl_check(ncclGroupEnd());
}

static void all_gather(struct backend *be, MPI_Comm comm, real_t *x, const size_t *counts) {
    int rank, size;
    size_t at = 0;
    if (cuda_pulls(be, x)) {
        cuda_pull_gather(be, comm, x, counts);
        return;
    }
    ncclComm_t c = of(be, comm);
    if (!c) return;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (all_equal(counts, size)) {
        nccl_check(ncclAllGather(real_at(be, x, (size_t)rank * counts[0]), x,
                                 counts[0] * be->real_bytes, ncclUint8, c, cuda_state(be)->stream));
        return;
    }
    nccl_check(ncclGroupStart());
    for (int r = 0; r < size; at += counts[r], r++)
        if (counts[r])
            nccl_check(ncclBroadcast(real_at(be, x, at), real_at(be, x, at),
                                     counts[r] * be->real_bytes, ncclUint8, r, c,
                                     cuda_state(be)->stream));
    nccl_check(ncclGroupEnd());
}

void cuda_exchange_rows(struct backend *be, const void *from, const int *from_first, void *to,
                        const int *to_first, size_t bytes) {
    struct cuda_state *s = cuda_state(be);
    int me = be->grid->ep_rank;
    enum clock before = be->clock(be, CLOCK_EXCHANGE);
    nccl_check(ncclGroupStart());
    for (int r = 0; r < be->grid->ep_size; r++) {
        const char *out = (const char *)from + (size_t)from_first[r] * bytes;
        char *in = (char *)to + (size_t)to_first[r] * bytes;
        size_t n_out = (size_t)(from_first[r + 1] - from_first[r]) * bytes,
               n_in = (size_t)(to_first[r + 1] - to_first[r]) * bytes;
        if (r == me) {
            be->copy(be, in, out, n_out);
            continue;
        }
        if (n_out) nccl_check(ncclSend(out, n_out, ncclUint8, r, s->comm->ep, s->stream));
        if (n_in) nccl_check(ncclRecv(in, n_in, ncclUint8, r, s->comm->ep, s->stream));
    }
    nccl_check(ncclGroupEnd());
    be->clock(be, before);
}

static void collectives_open(struct backend *be) {
    struct cuda_comm *c = cuda_state(be)->comm = memory_alloc(sizeof *c);
    /* multicast over NVLink hangs on some machines, and is not worth it here */
    setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
    c->world = comm_open(be->grid->world, 0);
    c->dp = comm_open(be->grid->dp, 0);
    c->ep = comm_open(be->grid->ep, 0);
}

void cuda_collectives_beside(struct backend *be) {
    struct cuda_comm *c = cuda_state(be)->comm;
    int blocks = cuda_state(be)->options.communication_sms;
    c->world_beside = comm_open(be->grid->world, blocks);
    if (be->grid->ep_size > 1) c->dp_beside = comm_open(be->grid->dp, blocks);
}

void cuda_collectives_close(struct backend *be) {
    struct cuda_comm *c = cuda_state(be)->comm;
    ncclComm_t all[] = {c->dp_beside, c->world_beside, c->ep, c->dp, c->world};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]) nccl_check(ncclCommDestroy(all[i]));
    memory_free(c);
}
#else
static void alone(struct backend *be, MPI_Comm comm, void *x) {
    int size;
    (void)be;
    (void)x;
    MPI_Comm_size(comm, &size);
    assert(size == 1);
}

static void all_reduce(struct backend *be, MPI_Comm comm, float *x, size_t n) {
    (void)n;
    alone(be, comm, x);
}
static void sum_uint32(struct backend *be, MPI_Comm comm, uint32_t *x, size_t n) {
    (void)n;
    alone(be, comm, x);
}
static void sum_double(struct backend *be, MPI_Comm comm, double *x, size_t n) {
    (void)n;
    alone(be, comm, x);
}
static void reduce_scatter(struct backend *be, MPI_Comm comm, float *x, const size_t *counts) {
    (void)counts;
    alone(be, comm, x);
}
static void all_gather(struct backend *be, MPI_Comm comm, real_t *x, const size_t *counts) {
    (void)counts;
    alone(be, comm, x);
}
void cuda_exchange_rows(struct backend *be, const void *from, const int *from_first, void *to,
                        const int *to_first, size_t bytes) {
    (void)from_first;
    (void)to;
    (void)to_first;
    (void)bytes;
    alone(be, be->grid->ep, (void *)(uintptr_t)from);
}
static void collectives_open(struct backend *be) {
    (void)be;
}
void cuda_collectives_beside(struct backend *be) {
    (void)be;
}
void cuda_collectives_close(struct backend *be) {
    (void)be;
}
#endif

static void reduce_scatter_add(struct backend *be, MPI_Comm comm, float *sum, float *x,
                               const size_t *counts, int without_own) {
    if (cuda_pulls(be, x))
        cuda_pull_add(be, comm, sum, x, counts, without_own);
    else
        backend_reduce_scatter_add(be, comm, sum, x, counts, without_own);
}

void cuda_fill_collectives(struct backend *be) {
    collectives_open(be);
    be->all_reduce = all_reduce;
    be->reduce_scatter = reduce_scatter;
    be->reduce_scatter_add = reduce_scatter_add;
    be->all_gather = all_gather;
    be->sum_uint32 = sum_uint32;
    be->sum_double = sum_double;
}
