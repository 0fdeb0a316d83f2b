/* Products in eight bits on GPUs without units for them (MXFP8 so far): operands are rounded to
 * E4M3 in blocks of 32 with a power of two (backend.h), which BF16 holds exactly, and multiplied in
 * BF16. What is summed over rows in one product and over columns in another is rounded for each.
 * Arrays as those of struct cuda_products; weights are copies (low_weights): rounded along their
 * rows, and from the middle on down their columns. */
#ifndef REGULON_BACKEND_CUDA_EMULATE_H
#define REGULON_BACKEND_CUDA_EMULATE_H
#include "backend/cuda.h"

void cuda_emulate_reserve(struct backend *be); /* after cuda_experts_reserve */
void cuda_emulate_close(struct backend *be);
void cuda_emulate_weights(struct backend *be, void *copies, const real_t *w, int n, int N, int K);

void cuda_emulate_up(struct backend *be, const struct cuda_rows *r, real_t *z, real_t *h,
                     const real_t *rows, const real_t *up);
void cuda_emulate_down(struct backend *be, const struct cuda_rows *r, real_t *y, const real_t *h,
                       const real_t *down);
void cuda_emulate_down_backward(struct backend *be, const struct cuda_rows *r, real_t *dz,
                                float *dp_rows, struct gradient ddown, const real_t *dy,
                                const real_t *z, real_t *h, const real_t *down);
void cuda_emulate_up_backward(struct backend *be, const struct cuda_rows *r, real_t *drows,
                              struct gradient dup, const real_t *dz, const real_t *rows,
                              const real_t *up);
void cuda_emulate_matmul(struct backend *be, real_t *y, const real_t *x, const real_t *w, int N,
                         int M, int D);
void cuda_emulate_matmul_dx(struct backend *be, real_t *dx, const real_t *dy, const real_t *w,
                            int N, int M, int D);
void cuda_emulate_matmul_dw(struct backend *be, float *dw, const real_t *dy, const real_t *x, int N,
                            int M, int D, int accumulate);
#endif
