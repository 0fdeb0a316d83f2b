/* What cuDNN's attention serves, and the scratch that it takes. Arithmetic alone: known in builds
 * without cuDNN, too. */
#ifndef REGULON_BACKEND_CUDNN_SIZES_H
#define REGULON_BACKEND_CUDNN_SIZES_H
#include <stddef.h>

struct cudnn_attention_sizes {
    int N;             /* tokens of a micro-batch, at most */
    int longest;       /* tokens of a document, at most; no matter for speed */
    int documents;     /* of a micro-batch, at most; 256 cost 5 % more than 4 at N 8192 */
    int H, G, K;       /* query heads, key and value heads, head width */
    int deterministic; /* same bits run to run: 8 % slower, and a workspace of 2 documents H
                          longest^2 bytes: for few documents. Otherwise dQ's last bits vary. */
};

/* 1, or 0 with the reason in why[size]. */
int cudnn_sizes_serve(const struct cudnn_attention_sizes *s, char *why, size_t size);

/* Where the parts of the scratch begin, in bytes. */
struct cudnn_scratch {
    size_t workspace, dq, dk, dv, dq_sum, dk_wide, dv_wide, row_sum, bytes;
};

/* workspace: what the plans ask for themselves: 17 kB unless deterministic (cuDNN 9.19), as good as
 * 0. */
struct cudnn_scratch cudnn_scratch_of(const struct cudnn_attention_sizes *s, size_t workspace);
#endif
