/* Causal grouped-query attention within packed documents, BF16, through cuDNN 9. Sliding windows
 * and everything that cuDNN refuses are for kernels/flash.h. */
#ifndef REGULON_BACKEND_CUDNN_ATTENTION_H
#define REGULON_BACKEND_CUDNN_ATTENTION_H
#include "backend/cudnn_graph.h"
#include "backend/cudnn_sizes.h"

/* Plans for a forward and a backward pass; seconds, so once, at the start. NULL, and the reason in
 * why[size], where there are none: no engine, a device that is no Hopper, K other than
 * 16, 32, 64 and 128, N (H + 2G) K of 2^31 or more. The caller frees it, before the target's
 * handle. */
struct cudnn_attention *cudnn_attention_new(struct cudnn_target on, struct cudnn_attention_sizes s,
                                            char *why, size_t size);
void cudnn_attention_free(struct cudnn_attention *a);

/* "cuDNN 9.19.0, engines 2 and 6": for the first lines of a run */
void cudnn_attention_describe(const struct cudnn_attention *a, char *text, size_t size);

/* Bytes of the scratch of either pass, of which nothing is kept between calls. */
size_t cudnn_attention_scratch(const struct cudnn_attention *a);

/* Where the documents of a micro-batch lie, as cuDNN wants to know it: filled on the host once per
 * micro-batch, uploaded by the caller. Tokens cu[d] .. cu[d + 1] - 1 are document d of n, which may
 * be empty; cu[0] is 0 and cu[n] the number of tokens: every token lies in a document. 1, or 0 with
 * the table untouched where there are more or longer documents than the plans allow: other plans
 * must do it. */
size_t cudnn_attention_table_bytes(const struct cudnn_attention *a);
int cudnn_attention_table(const struct cudnn_attention *a, int32_t *table, const int32_t *cu,
                          int n);

/* out[N, H K], lse[N, H] (FP32, natural logarithm) of qkv[N, (H + 2G) K], all bf16 otherwise; table
 * is the uploaded one, N its number of tokens. Pointers are to the device, aligned to 16 bytes
 * (scratch: 256); only enqueues; dies when cuDNN fails. */
void cudnn_attention_forward(const struct cudnn_attention *a, void *out, float *lse,
                             const void *qkv, const int32_t *table, void *scratch, int N);

/* dqkv[N, (H + 2G) K], overwritten */
void cudnn_attention_backward(const struct cudnn_attention *a, void *dqkv, const void *dout,
                              const void *out, const float *lse, const void *qkv,
                              const int32_t *table, void *scratch, int N);
#endif
