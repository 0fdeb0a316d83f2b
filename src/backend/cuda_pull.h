/* Collectives of the stream beside, over memory that the GPUs of one host reach, by copy engines:
 * for arrays of cuda_window_alloc on grid->world. */
#ifndef REGULON_BACKEND_CUDA_PULL_H
#define REGULON_BACKEND_CUDA_PULL_H
#include "backend/backend.h"
#include <cuda_runtime.h>

/* NULL: s->pull is there, with additions by so many thread blocks; else why not, to be freed by the
 * caller. After the stream beside is there, where cuda_pull_serves. Collective over world. */
char *cuda_pull_open(struct backend *be, int blocks);
void cuda_pull_close(struct backend *be);

/* 1: what is asked for now is served here: it is asked for beside, and x lies in a window. */
int cuda_pulls(const struct backend *be, const void *x);

/* The stream on which all is done that was asked for since the last call. */
cudaStream_t cuda_pull_end(struct backend *be);

/* As in the backend's table, with comm world or dp. x of the sum: PULL_SUM numbers at most. */
enum { CUDA_PULL_SUM = 1 << 18 };
void cuda_pull_gather(struct backend *be, MPI_Comm comm, real_t *x, const size_t *counts);
void cuda_pull_add(struct backend *be, MPI_Comm comm, float *sum, float *x, const size_t *counts,
                   int without_own);
void cuda_pull_sum(struct backend *be, MPI_Comm comm, float *x, size_t n);
#endif
