/* The CUDA backend, within itself: each file fills its part of the table. One GPU a rank; all work
 * is enqueued on one stream, in order, the experts' products on a few beside it, and what is asked
 * for between `beside` and `back` on another. The host waits in download, and so in moe_dispatch
 * where tokens travel through NCCL or the experts' products are asked for one by one; in upload
 * with 64 MB on their way, which no step comes near, and after some thousand turns of the clock;
 * nowhere else. */
#ifndef REGULON_BACKEND_CUDA_H
#define REGULON_BACKEND_CUDA_H
#include "backend/backend.h"
#include "backend/cuda_sizes.h"
#include "check.h"
#include "real.h"
#include "base/die.h"
#include <cublasLt.h>

struct cuda_state {
    enum real real;
    int device;
    cudaStream_t stream, sides[CUDA_SIDES]; /* stream: main, or beside */
    cudaEvent_t forked, joined[CUDA_SIDES];
    cudaStream_t main, beside; /* cuda_beside.c */
    cudaEvent_t asked, done[BESIDE_TICKETS];
    struct backend_options options;
    struct work work;                 /* what was reserved */
    struct cuda_upload *upload;       /* cuda_memory.c */
    struct cuda_clock *clock;         /* cuda_clock.c */
    struct cuda_gemm *gemm;           /* cuda_gemm.c */
    struct cuda_attention *attention; /* cuda_attention.c */
    struct cuda_comm *comm;           /* cuda_collectives.c */
    struct cuda_window *windows;      /* cuda_window.c */
    struct cuda_travel *travel;       /* cuda_travel.c; NULL: nothing goes through NCCL */
    struct cuda_peer *peer;           /* cuda_peer.c; NULL: no tokens go over peer memory */
    struct cuda_pull *pull;           /* cuda_pull.c; NULL: collectives beside go through NCCL */
    int product_sms; /* multiprocessors of products; 0: all; and while there is work beside them:
                        cuda_beside.c */
    int sms_beside_work;
    struct grouped *grouped;              /* cuda_grouped.c; NULL: a product an expert */
    const struct cuda_products *products; /* of the experts' engine */
    const struct cuda_eight *eight;       /* the recipe's, if any */
    struct cuda_low *low;                 /* cuda_low.c; NULL: not the way */
    void *emulated[2];                    /* cuda_emulate.c: rounded operands; NULL: not the way */
    void *mxfp8[N_CUDA_MXFP8_ROOMS];      /* cuda_mxfp8.c: operands; NULL: not the way */
    struct mxfp8_up *mxfp8_up;            /* gate and up by it; NULL: a product an expert */
    struct cuda_graphs *graphs;           /* cuda_graph.c */
    void *scratch;                        /* of one call at a time on the main stream */
    float *logits, *staged; /* [chunk, V] of the head; FP32 on its way to the compute type */
    void *dlogits;          /* [chunk, V] */
    double *losses;         /* [N] */
    int chunk;              /* tokens of the head at a time */
    float *rope;            /* [N, K] cosines and sines */
};

static inline struct cuda_state *cuda_state(const struct backend *be) {
    return be->state;
}

/* Around every call of CUDA's, cuBLASLt's and NCCL's. */
#define cuda_check(call)                                                                     \
    do {                                                                                     \
        cudaError_t status_ = (call);                                                        \
        if (status_ != cudaSuccess) die("CUDA: %s: %s", #call, cudaGetErrorString(status_)); \
    } while (0)

/* Why this rank's device cannot be used, NULL: it can. The caller frees it. */
char *cuda_refusal(const struct grid *g);
int cuda_capability(const struct grid *g); /* of this rank's device, which has no refusal */
/* Why the devices of all ranks cannot be used together. Collective over world, after no rank had a
 * refusal. */
char *cuda_refusal_together(const struct grid *g);

/* Everything but the table's head; options as backend_open gets them. */
void cuda_open(struct backend *be, const struct backend_options *options);

void cuda_fill_memory(struct backend *be);
void cuda_fill_clock(struct backend *be);
void cuda_fill_dense(struct backend *be); /* embedding, norms, products, RoPE */
void cuda_fill_attention(struct backend *be);
void cuda_fill_route(struct backend *be);
void cuda_fill_exchange(struct backend *be);
void cuda_fill_head(struct backend *be);
void cuda_fill_optimizer(struct backend *be);
void cuda_fill_collectives(struct backend *be);
void cuda_fill_graph(struct backend *be);
void cuda_fill_beside(struct backend *be); /* after the main stream is there */

void cuda_memory_close(struct backend *be);
void cuda_clock_close(struct backend *be);
/* What is enqueued in between counts as exchange, also where it is recorded. */
void cuda_exchange_begins(struct backend *be);
void cuda_exchange_ends(struct backend *be);
void cuda_graph_close(struct backend *be);
void cuda_gemm_open(struct backend *be);
void cuda_gemm_close(struct backend *be);
/* Plans for what was reserved; before it, nothing. */
void cuda_attention_reserve(struct backend *be);
void cuda_attention_close(struct backend *be);
size_t cuda_attention_scratch(const struct backend *be);
const char *cuda_attention_name(const struct backend *be);
/* Which kernels this micro-batch's documents get: a number for each choice there is. */
int cuda_attention_choice(const struct backend *be);
void cuda_collectives_close(struct backend *be);
/* Collective over world: NCCL's communicators of the stream beside. */
void cuda_collectives_beside(struct backend *be);
/* The stream beside and its way between ranks, of which there are two. Collective over world. */
void cuda_beside_reserve(struct backend *be);
/* "NCCL" or "peer memory"; not to be freed. */
const char *cuda_beside_name(const struct backend *be);
void cuda_beside_close(struct backend *be);
/* Rows of `bytes` bytes between the ranks of ep: rank r gets from_first[r] .. from_first[r + 1] - 1
 * of from, and what comes from it goes to to_first[r] .. of to. Collective over grid->ep. */
void cuda_exchange_rows(struct backend *be, const void *from, const int *from_first, void *to,
                        const int *to_first, size_t bytes);
/* The way between ranks, of which there are two, and room for what travels, for what is reserved.
 * Collective over world. The name is not to be freed. */
void cuda_exchange_reserve(struct backend *be);
void cuda_exchange_close(struct backend *be);
const char *cuda_exchange_name(const struct backend *be);
/* The experts' engine, of which there are two, for what is reserved; sets row_unit. The name is not
 * to be freed. */
void cuda_experts_reserve(struct backend *be);
const char *cuda_experts_name(const struct backend *be);
void cuda_experts_close(struct backend *be);
void cuda_fill_experts(struct backend *be);
/* The experts' products by one engine; arrays as experts_* of backend.h, on the main stream. */
struct cuda_rows;
struct cuda_products {
    void (*up)(struct backend *be, const struct cuda_rows *r, real_t *z, real_t *h, const real_t *x,
               const real_t *up);
    void (*down)(struct backend *be, const struct cuda_rows *r, real_t *y, const real_t *h,
                 const real_t *down);
    /* the gradient of z, which may be z itself, and of p; h made again */
    void (*down_gradient)(struct backend *be, const struct cuda_rows *r, real_t *dz, real_t *h,
                          float *dp_rows, const real_t *dy, const real_t *z, const real_t *down);
    void (*up_gradient)(struct backend *be, const struct cuda_rows *r, real_t *dx, const real_t *dz,
                        const real_t *up);
    void (*down_weights)(struct backend *be, const struct cuda_rows *r, struct gradient ddown,
                         const real_t *dy, const real_t *h);
    void (*up_weights)(struct backend *be, const struct cuda_rows *r, struct gradient dup,
                       const real_t *dz, const real_t *x);
};
extern const struct cuda_products cuda_grouped, cuda_grouped_apart, cuda_each;
/* What the grouped kernels are told of rows: of operands that lie by themselves, or, where there is
 * a stash, of x and z in it. */
struct grouped_rows;
struct grouped_rows cuda_grouped_rows(const struct backend *be, const struct cuda_rows *r);
struct grouped_rows cuda_stashed_rows(const struct backend *be, const struct cuda_rows *r);

/* The same in eight bits, for be->low, and projections, by one way; arrays as in backend.h, weights
 * as `weights` made copies of them. What is left in rooms by down_backward serves the up_backward
 * that follows. */
struct cuda_eight {
    void (*weights)(struct backend *be, void *copies, const real_t *w, int n, int N, int K);
    void (*up)(struct backend *be, const struct cuda_rows *r, real_t *z, real_t *h,
               const real_t *rows, const real_t *up);
    void (*down)(struct backend *be, const struct cuda_rows *r, real_t *y, const real_t *h,
                 const real_t *down);
    void (*down_backward)(struct backend *be, const struct cuda_rows *r, real_t *dz, float *dp_rows,
                          struct gradient ddown, const real_t *dy, const real_t *z, real_t *h,
                          const real_t *down);
    void (*up_backward)(struct backend *be, const struct cuda_rows *r, real_t *drows,
                        struct gradient dup, const real_t *dz, const real_t *rows,
                        const real_t *up);
    void (*matmul)(struct backend *be, real_t *y, const real_t *x, const real_t *w, int N, int M,
                   int D);
    void (*matmul_dx)(struct backend *be, real_t *dx, const real_t *dy, const real_t *w, int N,
                      int M, int D);
    void (*matmul_dw)(struct backend *be, float *dw, const real_t *dy, const real_t *x, int N,
                      int M, int D, int accumulate);
};
/* fp8_block by the grouped kernels; MXFP8 by products in BF16, and by cuBLASLt. */
extern const struct cuda_eight cuda_fp8, cuda_emulated, cuda_mxfp8;
/* What each of them needs, where it is the way; after cuda_experts_reserve. The second may refuse,
 * collective over world. */
void cuda_low_reserve(struct backend *be);
void cuda_low_close(struct backend *be);
void cuda_emulate_reserve(struct backend *be);
void cuda_emulate_close(struct backend *be);
void cuda_mxfp8_reserve(struct backend *be);
void cuda_mxfp8_close(struct backend *be);
/* h of a layer in BF16: o where it lies there, else made again of z in a room. */
const real_t *cuda_mxfp8_h(struct backend *be, const struct cuda_rows *r, const real_t *z,
                           const real_t *h);
void cuda_fill_low(struct backend *be);
void cuda_fill_statistics(struct backend *be);
/* What a layer, or a stash, has of z: in BF16 or in eight bits. */
struct fp8_z;
struct fp8_z cuda_low_kept_z(const struct backend *be, const real_t *z, const struct cuda_rows *r);

/* Waits for the main stream; counted. */
void cuda_wait(struct backend *be);

/* c[M, N] = a b + beta c, row-major as cpu_gemm: a is [M, K] (ta 1: [K, M]), b [K, N] (tb 1: [N,
 * K]), all dense; a and b of the compute type, c too, or FP32 with c_fp32. On stream `way` (0: the
 * main one). M, N, K may be 0: with K 0 and beta 0 c becomes zero. */
enum { CUDA_NO_TRANSPOSE, CUDA_TRANSPOSE };
void cuda_gemm(struct backend *be, int way, int ta, int tb, int M, int N, int K, const void *a,
               const void *b, float beta, void *c, int c_fp32);

/* c[M, N] = a b^T + beta c from a[M, K] and b[N, K] in MXFP8, on compute capability 10.0 and later;
 * c in BF16 or FP32, else as above. K is a multiple of 32. */
struct mxfp8_matrix;
void cuda_gemm_mxfp8(struct backend *be, int way, int M, int N, int K, struct mxfp8_matrix a,
                     struct mxfp8_matrix b, float beta, void *c, int c_fp32);
int cuda_gemm_has_mxfp8(void); /* 0: this program was built with a cuBLASLt that knows none */
/* 1: cuBLASLt has an algorithm for it. */
int cuda_gemm_mxfp8_serves(struct backend *be, int M, int N, int K, struct mxfp8_matrix a,
                           struct mxfp8_matrix b, void *c, int c_fp32);

/* Between fork and join the sides' work runs beside each other, after what lay on the main stream
 * before and before what comes after. */
void cuda_fork(struct backend *be);
void cuda_join(struct backend *be);

/* The rows that moe_dispatch laid out, on the device as route_rows.h has them. */
struct cuda_rows {
    int n_local;
    struct moe_shape shape;
    size_t most; /* rows that there is room for */
    const int32_t *offsets;
    const float *row_p;
    const int32_t *x_base, *z_base; /* first row in the stash of x_most and z_most rows, on the
                                       device; NULL: there is none */
    size_t x_most, z_most;
    const int32_t *host_offsets; /* the same for the host; only where s->grouped is NULL */
};
struct cuda_rows cuda_moe_rows(const struct backend *be, const struct moe *m);
#endif
