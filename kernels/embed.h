/* The embedding and its gradient. */
#ifndef REGULON_KERNELS_EMBED_H
#define REGULON_KERNELS_EMBED_H
#include "real.h"
#include "scratch.h"
#ifdef __cplusplus
extern "C" {
#endif
/* x[N, D] = table[tokens[i], :]; table[V, D] */
void embed_forward(enum real t, void *x, const void *table, const int32_t *tokens, int N, int D,
                   cudaStream_t stream);

/* dtable[V, D] (FP32) += dx[N, D] by token, each token's rows in a fixed order. Vocabularies of a
 * few letters, where thousands of rows meet in one, are the usual case: such a row is shared out
 * over blocks and summed in two steps. scratch: embed_scratch(N, D) bytes. */
void embed_backward(enum real t, float *dtable, const void *dx, const int32_t *tokens,
                    void *scratch, int N, int D, int V, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
