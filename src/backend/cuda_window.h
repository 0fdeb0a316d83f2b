/* Memory of every rank of a group that all of them reach, on GPUs of one host (CUDA IPC). */
#ifndef REGULON_BACKEND_CUDA_WINDOW_H
#define REGULON_BACKEND_CUDA_WINDOW_H
#include "backend/backend.h"
#include "peers.h"

/* An array of as many bytes on each of comm's ranks, PEERS at most; zero. Freed by the release,
 * which returns 0 for memory that is none of it. Both are collective over comm. */
void *cuda_window_alloc(struct backend *be, MPI_Comm comm, size_t bytes);
int cuda_window_release(struct backend *be, void *own);

/* The window that x of this rank lies in, by rank of its comm; NULL: it lies in none. */
const struct peers *cuda_window_of(const struct backend *be, const void *x);

/* A small one that is tried, without room in the arena: NULL, or why this rank cannot reach the
 * others', to be freed by the caller. close: also where that failed. Collective over comm. */
char *cuda_board_open(struct backend *be, MPI_Comm comm, size_t bytes, struct peers *at);
void cuda_board_close(MPI_Comm comm, struct peers *at);

/* Zero, by cudaMalloc: for what is no rooms of a model's. */
void *cuda_state_alloc(struct backend *be, size_t bytes);
#endif
