/* Each rank hands out a handle of its allocation, and opens those of the others. */
#include "config.h"
#include "backend/cuda_window.h"
#include "backend/cuda.h"
#include "base/memory.h"
#include <assert.h>

struct cuda_window {
    struct peers at;
    MPI_Comm comm; /* of the grid's */
    size_t bytes;
    struct cuda_window *next;
};

void *cuda_state_alloc(struct backend *be, size_t bytes) {
    void *p = NULL;
    cuda_check(cudaMalloc(&p, bytes));
    /* on the stream that is waited for: cudaMemset's own would come later, over others' writes */
    cuda_check(cudaMemsetAsync(p, 0, bytes, cuda_state(be)->stream));
    cuda_wait(be);
    return p;
}

/* The array of every rank from this rank's own. On failure NULL, else why not. */
static const char *open_all(MPI_Comm comm, void *own, struct peers *at) {
    cudaIpcMemHandle_t mine, all[PEERS];
    cudaError_t status = cudaIpcGetMemHandle(&mine, own);
    int fails = status != cudaSuccess;
    *at = (struct peers){.n = 0};
    MPI_Comm_size(comm, &at->n);
    MPI_Comm_rank(comm, &at->me);
    assert(at->n <= PEERS);
    at->at[at->me] = own;
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, comm);
    MPI_Allreduce(MPI_IN_PLACE, &fails, 1, MPI_INT, MPI_MAX, comm);
    for (int r = 0; r < at->n && !fails && status == cudaSuccess; r++)
        if (r != at->me)
            status = cudaIpcOpenMemHandle(&at->at[r], all[r], cudaIpcMemLazyEnablePeerAccess);
    (void)cudaGetLastError(); /* what failed here must not show in a later check */
    return status == cudaSuccess ? NULL : cudaGetErrorString(status);
}

/* What others read of this rank's and this rank of theirs is done; then the array is its own. */
static void close_all(MPI_Comm comm, struct peers *at) {
    cuda_check(cudaDeviceSynchronize());
    MPI_Barrier(comm);
    for (int r = 0; r < at->n; r++)
        if (r != at->me && at->at[r]) cuda_check(cudaIpcCloseMemHandle(at->at[r]));
    MPI_Barrier(comm);
}

void *cuda_window_alloc(struct backend *be, MPI_Comm comm, size_t bytes) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_window *w = memory_alloc(sizeof *w);
    void *own = be->alloc(be, cuda_shared_bytes(bytes));
    /* zeroed before others may write */
    cuda_check(cudaStreamSynchronize(s->stream));
    const char *why = open_all(comm, own, &w->at);
    if (why) die("rank %d cannot reach the others' memory: %s", be->grid->rank, why);
    w->comm = comm, w->bytes = bytes;
    w->next = s->windows, s->windows = w;
    return own;
}

int cuda_window_release(struct backend *be, void *own) {
    struct cuda_window **at = &cuda_state(be)->windows, *w;
    while ((w = *at) && w->at.at[w->at.me] != own) at = &w->next;
    if (!w) return 0;
    *at = w->next;
    close_all(w->comm, &w->at);
    cuda_check(cudaFree(own));
    memory_free(w);
    return 1;
}

const struct peers *cuda_window_of(const struct backend *be, const void *x) {
    for (const struct cuda_window *w = cuda_state(be)->windows; w; w = w->next) {
        const char *own = w->at.at[w->at.me];
        if ((const char *)x >= own && (const char *)x < own + w->bytes) return &w->at;
    }
    return NULL;
}

char *cuda_board_open(struct backend *be, MPI_Comm comm, size_t bytes, struct peers *at) {
    void *own = cuda_state_alloc(be, cuda_alloc_bytes(cuda_shared_bytes(bytes)));
    const char *why = open_all(comm, own, at);
    return why ? memory_format("a GPU's memory is out of reach: %s", why) : NULL;
}

void cuda_board_close(MPI_Comm comm, struct peers *at) {
    close_all(comm, at);
    if (at->n) cuda_check(cudaFree(at->at[at->me]));
    *at = (struct peers){.n = 0};
}
