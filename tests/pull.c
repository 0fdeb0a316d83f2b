/* Collectives over peer memory without a GPU: beside.c on the parts of the CUDA backend that make
 * them, over a runtime that stands in for CUDA's. And that they are left to NCCL where something
 * that they need fails. */
#include "config.h"
#include "backend/cuda.h"
#include "backend/cuda_pull.h"
#include "backend/cuda_window.h"
#include "base/memory.h"
#include "stand_in_cudart.h"
#include "tap.h"
#include "trial.h"
#include <assert.h>

static int n_left; /* times that they were left to NCCL */

void cuda_collectives_beside(struct backend *be) {
    (void)be;
    n_left++;
}

void cuda_wait(struct backend *be) {
    cuda_check(cudaStreamSynchronize(cuda_state(be)->stream));
}

static void *alloc(struct backend *be, size_t bytes) {
    void *p = NULL;
    cuda_check(cudaMalloc(&p, cuda_alloc_bytes(bytes)));
    cuda_check(cudaMemsetAsync(p, 0, cuda_alloc_bytes(bytes), cuda_state(be)->stream));
    return p;
}

static void release(struct backend *be, void *p) {
    if (!cuda_window_release(be, p)) cuda_check(cudaFree(p));
}

static void zero(struct backend *be, void *p, size_t bytes) {
    cuda_check(cudaMemsetAsync(p, 0, bytes, cuda_state(be)->stream));
}

static void copy(struct backend *be, void *to, const void *from, size_t bytes) {
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_state(be)->stream));
}

static void transfer(struct backend *be, void *to, const void *from, size_t bytes) {
    copy(be, to, from, bytes);
    cuda_wait(be);
}

static void upload_real(struct backend *be, real_t *to, const float *from, size_t n) {
    transfer(be, to, from, n * sizeof *from);
}

static void download_real(struct backend *be, float *to, const real_t *from, size_t n) {
    transfer(be, to, from, n * sizeof *to);
}

static void gather(struct backend *be, MPI_Comm comm, real_t *x, const size_t *counts) {
    assert(cuda_pulls(be, x));
    cuda_pull_gather(be, comm, x, counts);
}

static void add(struct backend *be, MPI_Comm comm, float *sum, float *x, const size_t *counts,
                int without_own) {
    assert(cuda_pulls(be, x));
    cuda_pull_add(be, comm, sum, x, counts, without_own);
}

static void reduce(struct backend *be, MPI_Comm comm, float *x, const size_t *counts) {
    int rank;
    MPI_Comm_rank(comm, &rank);
    add(be, comm, x + backend_first(counts, rank), x, counts, /*without_own=*/1);
}

static void sum(struct backend *be, MPI_Comm comm, float *x, size_t n) {
    assert(cuda_pulls(be, x));
    cuda_pull_sum(be, comm, x, n);
}

static void close(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    cuda_wait(be);
    cuda_beside_close(be);
    assert(!s->windows && !s->pull);
    cuda_check(cudaStreamDestroy(s->stream));
    memory_free(s);
}

static struct backend *new_backend(const struct grid *g) {
    struct backend *be = memory_alloc(sizeof *be);
    struct cuda_state *s = be->state = memory_alloc(sizeof *s);
    be->name = "stand-in", be->grid = g, be->real_bytes = sizeof(float), be->close = close;
    cuda_check(cudaStreamCreateWithPriority(&s->stream, cudaStreamNonBlocking, 0));
    be->alloc = alloc, be->release = release, be->zero = zero, be->copy = copy;
    be->upload = be->download = transfer;
    be->upload_real = upload_real, be->download_real = download_real;
    be->all_gather = gather, be->reduce_scatter = reduce;
    be->reduce_scatter_add = add, be->all_reduce = sum;
    cuda_fill_beside(be);
    return be;
}

void backend_close(struct backend *be) {
    be->close(be);
    memory_free(be);
}

/* On one rank alone, too. */
static void check_failures(const struct grid *g) {
    static const char *const names[] = {"", "an operation that the driver lacks",
                                        "memory out of reach", "an operation that fails"};
    for (int rank = -1; rank < 1; rank++)
        for (int what = FAILS_ENTRY; what <= FAILS_OPS; what++) {
            struct backend *be = new_backend(g);
            n_left = 0;
            stand_in_fails(rank < 0 || g->rank == rank ? what : FAILS_NOTHING);
            cuda_beside_reserve(be);
            stand_in_fails(FAILS_NOTHING);
            tap_ok(!cuda_state(be)->pull && n_left == 1, "left to NCCL: %s on %s", names[what],
                   rank < 0 ? "all ranks" : "one");
            backend_close(be);
        }
}

static void reserve(struct backend *be, struct work w) {
    (void)w;
    check_failures(be->grid);
    n_left = 0;
    cuda_beside_reserve(be);
    tap_ok(cuda_state(be)->pull && n_left == 0, "else they are not");
}

struct backend *trial_backend(const struct grid *g) {
    struct backend *be = new_backend(g);
    be->reserve = reserve;
    return be;
}
