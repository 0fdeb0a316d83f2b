/* A rank fetches from the others what it needs, by copies that the device's copy engines do, and
 * adds up what is to be added up with a few thread blocks: products beside lose next to nothing.
 *
 * At a meeting the ranks of a group wait for each other. Any two of them count the meetings that
 * they had, and each tells the other its count, by operations of the stream itself that take no
 * multiprocessor (cuStreamBatchMemOp): a write to the other's board, then a wait for the other's
 * write to one's own. A write comes behind all that the stream did before. A call begins with a
 * meeting, behind which what is fetched is there, and ends with one, behind which all have it: so
 * an array is its owner's before and after a call, as with NCCL.
 *
 * All ranks enqueue the same calls in the same order, so nothing waits in a circle (see
 * kernels/README.md). The counts are constants of the host's: none of it may be recorded. */
#include "config.h"
#include "backend/cuda_pull.h"
#include "backend/cuda.h"
#include "backend/cuda_window.h"
#include "base/memory.h"
#include "driver.h"
#include "peer_add.h"
#include <assert.h>
#include <cuda.h>
#include <string.h>

enum { ROOMS = 2 };

/* Others write to `came`, which their owner reads; `name` is for the trial at the start. */
struct board {
    uint32_t came[PEERS]; /* by rank of world: meetings with it, as it says */
    uint32_t name;        /* 1 + its rank */
};

static_assert(sizeof(struct board) <= CUDA_PULL_BOARD, "its room is planned");

typedef CUresult batch_ops(CUstream stream, unsigned int n, CUstreamBatchMemOpParams *list,
                           unsigned int flags);

struct cuda_pull {
    batch_ops *batch;
    struct peers boards; /* by rank of world */
    uint32_t met[PEERS]; /* by rank of world: meetings with it so far */
    /* Parts of sums on their way, in two rooms in turns: while one fills, the other is added up */
    char *rooms[ROOMS]; /* [CUDA_PULL_ROOM] bytes each */
    cudaEvent_t came[ROOMS], added[ROOMS], fetched;
    cudaStream_t adding;
    int adds; /* sums may be on their way there since cuda_pull_end */
    int blocks;
};

/* The ranks of a communicator, by their rank in world. */
struct group {
    int n, me, of[PEERS];
};

static struct group group_of(const struct backend *be, MPI_Comm comm) {
    const struct grid *g = be->grid;
    int dp = comm == g->dp;
    struct group r = {.n = dp ? g->dp_size : g->n_ranks, .me = dp ? g->dp_rank : g->rank};
    assert(dp || comm == g->world);
    for (int k = 0; k < r.n; k++) r.of[k] = dp ? k * g->ep_size + g->ep_rank : k;
    return r;
}

/* The k-th behind this rank: each begins with another one, so that links share the work. */
static int rank_behind(const struct group *g, int k) {
    return (g->me + k) % g->n;
}

/* ---- meetings ---- */

static CUdeviceptr came(const struct peers *boards, int on, int from) {
    struct board *board = boards->at[on];
    return (CUdeviceptr)(uintptr_t)(board->came + from);
}

/* An operation for a meeting with rank r of world; op is zero before. */
typedef void board_op(struct cuda_pull *p, int r, CUstreamBatchMemOpParams *op);

/* It is told that this rank has come to one meeting more with it. */
static void tell(struct cuda_pull *p, int r, CUstreamBatchMemOpParams *op) {
    op->writeValue =
        (struct CUstreamMemOpWriteValueParams_st){.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                                                  .address = came(&p->boards, r, p->boards.me),
                                                  .value = ++p->met[r],
                                                  .flags = CU_STREAM_WRITE_VALUE_DEFAULT};
}

/* What follows on the stream waits until it has told as much. */
static void hear(struct cuda_pull *p, int r, CUstreamBatchMemOpParams *op) {
    op->waitValue =
        (struct CUstreamMemOpWaitValueParams_st){.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                                                 .address = came(&p->boards, p->boards.me, r),
                                                 .value = p->met[r],
                                                 .flags = CU_STREAM_WAIT_VALUE_GEQ};
}

/* The same with all others of the group. */
static CUresult with_others(struct backend *be, const struct group *g, board_op *one) {
    struct cuda_pull *p = cuda_state(be)->pull;
    CUstreamBatchMemOpParams list[PEERS];
    unsigned n = 0;
    memset(list, 0, sizeof list);
    for (int k = 1; k < g->n; k++) one(p, g->of[rank_behind(g, k)], &list[n++]);
    return n ? p->batch(cuda_state(be)->beside, n, list, 0) : CUDA_SUCCESS;
}

static void meet(struct backend *be, const struct group *g) {
    CUresult status = with_others(be, g, tell);
    if (status == CUDA_SUCCESS) status = with_others(be, g, hear);
    if (status != CUDA_SUCCESS) die("CUDA: cuStreamBatchMemOp: error %d", (int)status);
}

/* ---- the trial at the start ---- */

static batch_ops *find_batch(void) {
    void *found = driver_function("cuStreamBatchMemOp");
    batch_ops *f = NULL;
    if (found) memcpy(&f, &found, sizeof f); /* C has no cast for it */
    return f;
}

static char *failed(CUresult status) {
    return memory_format("operations of a stream on a GPU's memory fail: error %d", (int)status);
}

/* A meeting, its two halves apart, so that nobody waits for what does not come; then a copy from
 * every rank. Collective over world, and so is the result. */
static char *try_meeting(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_pull *p = s->pull;
    const struct group world = group_of(be, be->grid->world);
    struct board *own = p->boards.at[p->boards.me], mine = {.name = (uint32_t)p->boards.me + 1};
    char *problem = NULL;
    cuda_check(cudaMemcpy(&own->name, &mine.name, sizeof mine.name, cudaMemcpyHostToDevice));
    CUresult status = with_others(be, &world, tell);
    cuda_check(cudaStreamSynchronize(s->beside));
    MPI_Barrier(be->grid->world);
    cuda_check(cudaMemcpy(&mine, own, sizeof mine, cudaMemcpyDeviceToHost));
    for (int r = 0; r < world.n && !problem; r++)
        if (r != world.me && mine.came[r] != 1)
            problem = memory_format("what rank %d wrote did not arrive", r);
    if (status != CUDA_SUCCESS) memory_free(problem), problem = failed(status);
    problem = agree_problem(be->grid, problem);
    if (problem) return problem;
    status = with_others(be, &world, hear);
    for (int r = 0; r < world.n; r++)
        cuda_check(cudaMemcpyAsync(p->rooms[0] + (size_t)r * sizeof mine, p->boards.at[r],
                                   sizeof mine, cudaMemcpyDeviceToDevice, s->beside));
    cuda_check(cudaStreamSynchronize(s->beside));
    if (status != CUDA_SUCCESS) problem = failed(status);
    for (int r = 0; r < world.n && !problem; r++) {
        struct board other;
        cuda_check(cudaMemcpy(&other, p->rooms[0] + (size_t)r * sizeof other, sizeof other,
                              cudaMemcpyDeviceToHost));
        if (other.name != (uint32_t)r + 1)
            problem = memory_format("what rank %d has was not what was copied", r);
    }
    return agree_problem(be->grid, problem);
}

char *cuda_pull_open(struct backend *be, int blocks) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_pull *p = s->pull = memory_alloc(sizeof *p);
    int least, most;
    p->batch = find_batch();
    p->blocks = blocks;
    cuda_check(cudaDeviceGetStreamPriorityRange(&least, &most));
    cuda_check(cudaStreamCreateWithPriority(&p->adding, cudaStreamNonBlocking, most));
    for (int k = 0; k < ROOMS; k++) {
        cuda_check(cudaEventCreateWithFlags(&p->came[k], cudaEventDisableTiming));
        cuda_check(cudaEventCreateWithFlags(&p->added[k], cudaEventDisableTiming));
        p->rooms[k] = be->alloc(be, CUDA_PULL_ROOM);
    }
    cuda_check(cudaEventCreateWithFlags(&p->fetched, cudaEventDisableTiming));
    cuda_wait(be); /* zeroed */
    char *problem = cuda_board_open(be, be->grid->world, CUDA_PULL_BOARD, &p->boards);
    if (!p->batch && !problem)
        problem = memory_string("this driver has no operations of streams on memory");
    problem = agree_problem(be->grid, problem);
    if (!problem) problem = try_meeting(be);
    if (problem) cuda_pull_close(be);
    return problem;
}

void cuda_pull_close(struct backend *be) {
    struct cuda_pull *p = cuda_state(be)->pull;
    if (!p) return;
    cuda_board_close(be->grid->world, &p->boards);
    cuda_check(cudaStreamDestroy(p->adding));
    for (int k = 0; k < ROOMS; k++) {
        cuda_check(cudaEventDestroy(p->came[k]));
        cuda_check(cudaEventDestroy(p->added[k]));
        cuda_check(cudaFree(p->rooms[k]));
    }
    cuda_check(cudaEventDestroy(p->fetched));
    memory_free(p);
    cuda_state(be)->pull = NULL;
}

/* ---- the collectives ---- */

cudaStream_t cuda_pull_end(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_pull *p = s->pull;
    if (!p->adds) return s->beside;
    p->adds = 0;
    cuda_check(cudaEventRecord(p->fetched, s->beside));
    cuda_check(cudaStreamWaitEvent(p->adding, p->fetched, 0));
    return p->adding;
}

int cuda_pulls(const struct backend *be, const void *x) {
    const struct cuda_state *s = cuda_state(be);
    return s->pull && s->stream == s->beside && cuda_window_of(be, x);
}

/* Where rank r of the group has what this rank has at x. */
static const void *theirs(const struct backend *be, const struct group *g, int r, const void *x) {
    const struct peers *at = cuda_window_of(be, x);
    assert(at && at->n == be->grid->n_ranks);
    return (const char *)at->at[g->of[r]] + ((const char *)x - (const char *)at->at[at->me]);
}

/* What rank r has there. (Where there is nothing x may be the end of its window.) */
static void fetch(struct backend *be, const struct group *g, int r, void *to, const void *x,
                  size_t bytes) {
    if (bytes)
        cuda_check(cudaMemcpyAsync(to, theirs(be, g, r, x), bytes, cudaMemcpyDeviceToDevice,
                                   cuda_state(be)->beside));
}

void cuda_pull_gather(struct backend *be, MPI_Comm comm, real_t *x, const size_t *counts) {
    const struct group g = group_of(be, comm);
    meet(be, &g);
    for (int k = 1; k < g.n; k++) {
        int r = rank_behind(&g, k);
        real_t *part = real_at(be, x, backend_first(counts, r));
        fetch(be, &g, r, part, part, counts[r] * be->real_bytes);
    }
    meet(be, &g);
}

/* Fetches n numbers at x of all other ranks into a room that nobody adds up any more; returns where
 * those of all ranks are then, or all but this one. room_n: numbers that there is room for of each.
 */
static struct peer_parts fetch_parts(struct backend *be, const struct group *g, int room,
                                     const float *x, size_t n, size_t room_n, int without_own) {
    float *to = (float *)cuda_state(be)->pull->rooms[room];
    struct peer_parts parts = {.n = g->n - without_own};
    if (!without_own) parts.at[g->me] = x;
    for (int k = 1; k < g->n; k++) {
        int r = rank_behind(g, k);
        fetch(be, g, r, to, x, n * sizeof *to);
        parts.at[without_own && r > g->me ? r - 1 : r] = to;
        to += room_n;
    }
    return parts;
}

/* Numbers of each of the others that a room has place for. */
static size_t place_of(const struct group *g) {
    size_t n = CUDA_PULL_ROOM / sizeof(float) / (size_t)(g->n > 1 ? g->n - 1 : 1);
    return n / 64 * 64;
}

void cuda_pull_add(struct backend *be, MPI_Comm comm, float *sum, float *x, const size_t *counts,
                   int without_own) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_pull *p = s->pull;
    const struct group g = group_of(be, comm);
    const float *mine = x + backend_first(counts, g.me);
    size_t n = counts[g.me], most = place_of(&g);
    int room = 0;
    meet(be, &g);
    for (size_t at = 0, some; at < n; at += some, room = (room + 1) % ROOMS) {
        some = n - at < most ? n - at : most;
        cuda_check(cudaStreamWaitEvent(s->beside, p->added[room], 0));
        struct peer_parts parts = fetch_parts(be, &g, room, mine + at, some, most, without_own);
        cuda_check(cudaEventRecord(p->came[room], s->beside));
        cuda_check(cudaStreamWaitEvent(p->adding, p->came[room], 0));
        peer_add(sum + at, parts, some, /*accumulate=*/1, p->blocks, p->adding);
        cuda_check(cudaEventRecord(p->added[room], p->adding));
    }
    meet(be, &g); /* the others have what they need of x; the sums go on */
    p->adds = 1;
}

void cuda_pull_sum(struct backend *be, MPI_Comm comm, float *x, size_t n) {
    struct cuda_state *s = cuda_state(be);
    const struct group g = group_of(be, comm);
    assert(n <= CUDA_PULL_SUM && CUDA_PULL_SUM <= place_of(&g));
    meet(be, &g);
    cuda_check(cudaStreamWaitEvent(s->beside, s->pull->added[0], 0));
    struct peer_parts parts = fetch_parts(be, &g, 0, x, n, CUDA_PULL_SUM, /*without_own=*/0);
    meet(be, &g);
    peer_add(x, parts, n, /*accumulate=*/0, s->pull->blocks, s->beside);
}
