/* The table of everything that is computed or communicated in a step. Two backends fill it: `cpu`
 * is the definition, plain loops in FP32; `cuda` must agree with it. The model is written once,
 * over this table.
 *
 * Letters as in model/shape.h. N is the number of tokens of the micro-batch (any, also 0), R the
 * number of rows of this rank's experts, those that pad included. Unless said otherwise arrays are
 * row-major, dense, and lie in backend memory (`alloc`), and a call is local to the rank.
 * "Collective" calls are made by every rank of the named communicator in the same order, whatever
 * their N. Nothing here allocates after `moe_new`. Failures of the system end the program (die). */
#ifndef REGULON_BACKEND_BACKEND_H
#define REGULON_BACKEND_BACKEND_H
#include "config/config.h"
#include "grid/grid.h"
#include "gradient.h"
#include "low_sums.h"
#include <stddef.h>
#include <stdint.h>

/* An array of the backend's compute type: float on cpu, bf16 on cuda. */
typedef void real_t;

struct backend;

/* Sizes of attention; qkv[N, (H + 2G) K] holds a token's H queries, G keys, G values. */
struct attention_shape {
    int H, G, K;
    int window; /* tokens a query sees, itself included; 0: all */
};

/* Keys and values of one layer, kept for sequences that go on: those of position t of the sequence
 * in place s at kv[s, t, 2 G K], keys first. */
struct kept {
    real_t *kv;                  /* [places, room, 2 G K] */
    int room;                    /* positions */
    const int32_t *place, *past; /* [documents] host memory: where document d's sequence lies, and
                                    how many positions of it are there already */
};

/* Sizes of one mixture-of-experts layer. */
struct moe_shape {
    int D, F, E, A;
    int capacity; /* largest N */
};

/* Where each (token, expert) pair of one layer went: made by moe_dispatch, read until the next.
 * Opaque. */
struct moe;

/* Two arrays in which layers have the rows of their experts, and z, one behind the other in the
 * order of moe_dispatch, with the place of one of them. */
struct stash {
    const struct moe *before; /* whose rows these follow; NULL: they are the first */
    size_t rows, z;           /* of the arrays. z 0: the layer's z lies elsewhere, in R rows */
    double *overflow, *need;  /* [1], [2]: see moe_stash */
};

/* What the router did with N tokens; arrays of the layer, kept for the backward pass. */
struct routing {
    float *probs;     /* [N, E] softmax of the logits */
    float *lse;       /* [N] log-sum-exp of the logits */
    int32_t *ids;     /* [N, A] chosen experts, ascending */
    float *p;         /* [N, A] their probabilities, renormalised to sum 1 */
    uint32_t *counts; /* [E] tokens for each expert, of this micro-batch on this rank */
    double *P;        /* [E] sum over tokens of probs */
    double *entropy;  /* [1] sum over tokens of the softmax's entropy, nats */
    double *z;        /* [1] sum over tokens of lse^2 */
};

/* The losses that keep the experts evenly used: the auxiliary loss (Shazeer et al. 2017; Fedus et
 * al. 2022, eq. 4) and the z-loss (Zoph et al. 2022, eq. 5). With counts c_le, probability sums
 * P_le and N = sum_e c_0e / A tokens (0 counts as 1):
 *
 *     layer: aux = sum_l E sum_e (c_le / (N A)) (P_le / N)
 *     hf:    aux = E sum_e (sum_l c_le / (L N)) (sum_l P_le / (L N))
 *     z = sum_l (sum of lse^2) / N
 *
 * c and N may be those of all ranks; P and the sum of lse^2 are then this rank's share. The
 * gradients are those of weight * (coef aux + z_coef z): with respect to a token's probs, and to
 * its lse^2. */
struct balance {
    int L, E, A;
    int hf;        /* router.aux_loss is hf, else layer */
    double coef;   /* of the auxiliary loss */
    double z_coef; /* of the z-loss */
    double weight; /* of the micro-batch in the step's loss */
};

/* Sums over the micro-batches of a step. */
struct tally {
    double *aux, *z;  /* [1] weight * loss, without coefficients */
    double *entropy;  /* [L] */
    uint32_t *counts; /* [L, E] */
};

/* One AdamW update. See adamw below. */
struct adamw {
    float lr, beta1, beta2, eps, decay;
    float correction1, correction2; /* 1 - beta^t */
};

/* Recipes of eight bits, precision.recipe's. The product of two operands is that of their rounded
 * values: E4M3 (formats.h) in blocks that share a scale, cut off where the matrix ends, begun anew
 * with each expert's first row.
 *
 *     LOW_FP8_BLOCK  scales FORMAT_FP32. In products with weights activations and gradients have
 *                    1 x 128, the 128 along the sum, and weights 128 x 128; in gradients of
 *                    weights the gradient 1 x 128, down the tokens, and the activation 128 x 128
 *     LOW_MXFP8      scales FORMAT_E8M0. All operands 1 x 32, the 32 along the sum
 *
 * What is summed over its rows in one product and its columns in another is rounded for each from
 * the values themselves (on a GPU h once from FP32, once from BF16). Sums are FP32, and so is what
 * is added to. */
enum low { LOW_NONE, LOW_FP8_BLOCK, LOW_MXFP8 };

/* An operand of products that sum along its columns. */
enum low_place {
    LOW_TOKENS,  /* x[rows, cols], activations or gradients of a projection */
    LOW_WEIGHTS, /* x[n, rows, cols], the weights of n experts, or (n 1) of a projection */
    LOW_ROWS,    /* rows of an expert layer */
    LOW_RESULTS, /* its y, or their gradients */
    LOW_H,       /* its h, given z too; behind experts_up, with both as it left them */
    LOW_DZ       /* its dz, given z (whose place dz has taken, or not) and h; behind
                    experts_down_backward, likewise */
};
struct low_operand {
    enum low_place place;
    const real_t *x;     /* the array of this name above; z with LOW_H and LOW_DZ */
    const real_t *h;     /* with these */
    const struct moe *m; /* the layer; rows are as many as it has */
    int n, rows, cols;   /* with LOW_TOKENS and LOW_WEIGHTS */
};

/* How devices compute in a recipe: not at all, as they can, or in units for it. */
enum low_way { LOW_LACKING, LOW_EMULATED, LOW_FAST };

/* What there will be work beside: nothing; the backward pass of a step's last micro-batch, and
 * AdamW; all passes. */
enum beside { BESIDE_NOTHING, BESIDE_LAST_PASS, BESIDE_PASSES };

/* What a backend may have to serve, for its work space. */
struct work {
    int N;       /* tokens of a micro-batch at most */
    int longest; /* of them of a document, usually; 0: any number */
    int D, F, E, A, V;
    struct attention_shape attention;
    double theta; /* of RoPE */
    int backward; /* 0: forward passes only */
    enum beside beside;
    enum low low;     /* the recipe that `low` of the backend will ask for */
    enum low_way way; /* how it is computed, on a GPU: the backend's */
    int capability;   /* of the GPU, 90 for 9.0; 0: none. The backend's */
};

/* A part of a micro-batch's work that a backend may record and replay: it is the same whenever all
 * this is. What lies in backend memory may differ. */
struct recording {
    const void *owner; /* of the arrays that it works on */
    const char *name;  /* a constant */
    int N;
    int accumulate; /* gradients are added to */
};

/* What time is spent on. */
enum clock {
    CLOCK_OTHER,
    CLOCK_FORWARD,
    CLOCK_BACKWARD,
    CLOCK_EXCHANGE,
    CLOCK_REDUCE,
    CLOCK_OPTIMIZER,
    N_CLOCKS
};

enum { BESIDE_TICKETS = 4 };

struct backend {
    const char *name;
    const char *details; /* library and threads, for the first lines of a run */
    const char *engines; /* what `auto` became: after reserve, where it depends on sizes */
    size_t real_bytes;   /* of one element of real_t: 4 or 2 */
    const struct grid *grid;
    uint64_t *sent_rows; /* [ep_size] what `sent` returns; the backend's */
    int forced;          /* tests: route keeps the experts that it finds in r->ids */
    enum low low;   /* the caller's, before each call: the recipe of matmul, matmul_dx, matmul_dw
                       and experts_*; the one that reserve was told, or LOW_NONE */
    int low_z;      /* 1: z of layers with a recipe is kept in eight bits: see low_z_bytes; the
                       caller's, before reserve */
    int low_rows;   /* 1: rows go from tokens to experts in eight bits: see moe_dispatch; the
                       options', tests' before reserve */
    int row_unit;   /* an expert's rows begin at multiples of it; after reserve. Tests set the CPU's
                     */
    int stashes;    /* 1: memory is worth a stash for all layers' rows; the same */
    int overlaps;   /* 1: work beside other work goes on at the same time */
    int own_unit;   /* gradients that experts_* leave may have own rows that begin and end at
                       multiples of it; 0: they have none; the same */
    int rows_again; /* 1: moe_dispatch lays the rows of each layer at the beginning of its stash,
                       over those of the others; set and taken back between steps */
    int64_t waits;  /* times that the host has waited for a device */
    int peak_side;  /* of the square matrices whose product shows how fast it can be */
    int has_profiler; /* 1: there is one that `profile` reaches */
    int sealed;       /* 1: nothing may be allocated any more; debug builds assert it */
    void *state;
    void (*close)(struct backend *be); /* backend_close calls it */

    /* ---- memory ---- */
    void *(*alloc)(struct backend *be, size_t bytes); /* zeroed; dies when there is none */
    void (*release)(struct backend *be, void *p);
    /* As alloc, for what moe_* send to other ranks or get from them: rows of experts, their results
     * and gradients, dp_rows. Collective over grid->ep, and so is its release. */
    void *(*alloc_shared)(struct backend *be, size_t bytes);
    /* As alloc, for what collectives beside other work (see below) get: after reserve. Collective
     * over grid->world, and so is its release. */
    void *(*alloc_beside)(struct backend *be, size_t bytes);
    /* host to backend, backend to host */
    void (*upload)(struct backend *be, void *dst, const void *src, size_t bytes);
    void (*download)(struct backend *be, void *dst, const void *src, size_t bytes);
    void (*zero)(struct backend *be, void *p, size_t bytes);
    void (*copy)(struct backend *be, void *dst, const void *src, size_t bytes); /* within it */
    /* FP32 host memory to the compute type, rounded to nearest even; and back */
    void (*upload_real)(struct backend *be, real_t *dst, const float *src, size_t n);
    void (*download_real)(struct backend *be, float *dst, const real_t *src, size_t n);
    /* FP32 backend memory to the compute type; where that is FP32 too, dst may be src */
    void (*round)(struct backend *be, real_t *dst, const float *src, size_t n);
    double (*memory_peak)(struct backend *be); /* bytes in use at most so far, device or host */

    /* Work space for a model of these sizes: asked for once; nothing is allocated
     * after it. */
    void (*reserve)(struct backend *be, struct work w);

    /* ---- time ---- */
    /* From here on, in the order of the work, time counts as `what`; returns what it counted as. */
    enum clock (*clock)(struct backend *be, enum clock what);
    /* Seconds since the last call, by kind; after a download, which waits for the work. */
    void (*clock_read)(struct backend *be, double seconds[N_CLOCKS]);

    /* ---- work beside other work ---- */
    /* What is asked for between `beside` and `back` begins when what was asked for before is done,
     * goes on beside what is asked for after `back`, and stretches of it follow one another (but
     * nothing reads sums of reduce_scatter and reduce_scatter_add before `await`). It may be copy,
     * round, add, all_reduce, reduce_scatter, reduce_scatter_add and all_gather, the latter four on
     * arrays of alloc_beside, at the same place in those of all ranks, all_reduce of what is
     * replicated for having fewer rows than there are ranks; and it is not to be recorded. Of what
     * it reads and writes nothing may be touched before `await` with the ticket that was given to
     * `back`: what is asked for from then on begins when all stretches with this ticket are done;
     * at once, where there was none. reserve was told of it. */
    void (*beside)(struct backend *be);
    void (*back)(struct backend *be, int ticket); /* < BESIDE_TICKETS */
    void (*await)(struct backend *be, int ticket);

    /* ---- work that is repeated ---- */
    /* 1: the work was recorded before and is enqueued. 0: the caller does it, and calls `recorded`
     * behind it. It may neither upload, download, turn the clock, work beside nor ask for
     * collectives but moe_*, and nothing of it may be asked of the host in between. Ranks need not
     * agree: what is repeated is the same work. */
    int (*replay)(struct backend *be, struct recording what);
    void (*recorded)(struct backend *be);
    /* How many operations work(context) enqueues, which are not done: as in `replay` it may ask
     * nothing of the host, and it was done before. 0: the host does them itself. */
    int (*operations)(struct backend *be, void (*work)(void *context), void *context);

    /* Tells a profiler that waits for it to begin (1) or to end (0) recording; the work so far is
     * done then. Without has_profiler: nothing. */
    void (*profile)(struct backend *be, int on);

    /* ---- weights and activations in eight bits ---- */
    /* Bytes of the copies of weights w[n, N, K] that products in a recipe are given in place of
     * the weights; 0, for all sizes: they are given the weights. */
    size_t (*low_bytes)(struct backend *be, int n, int N, int K);
    /* Bytes of z[R, 2F] of a layer with the recipe. With low_z it is rounded to E4M3 in blocks of
     * 1 x 128 or 1 x 32 of gate and of up, as the first operand of a product is: the forward pass,
     * h, is made of z as compute type has it, and is the same; the backward pass has the rounded
     * one. */
    size_t (*low_z_bytes)(struct backend *be, size_t R, int F);
    /* Bytes of what low_keep makes of x[N, D], which a projection in the recipe multiplies, for the
     * gradient of its weights; 0, for all sizes: matmul_dw takes x, and there are no low_keep and
     * matmul_dw_kept. */
    size_t (*low_kept_bytes)(struct backend *be, int N, int D);
    void (*low_keep)(struct backend *be, void *kept, const real_t *x, int N, int D);
    /* matmul_dw to the bit, of what low_keep made of x. */
    void (*matmul_dw_kept)(struct backend *be, float *dw, const real_t *dy, const void *kept, int N,
                           int M, int D, int accumulate);
    /* copies, of as many bytes, become those of the weights at w, for the products that follow;
     * anew whenever the weights have changed. w is not needed after it. Nothing where low_bytes is
     * 0. */
    void (*low_weights)(struct backend *be, void *copies, const real_t *w, int n, int N, int K);
    /* What the recipe in `low` does to an operand, added to sums[N_LOW_SUMS] (low_sums.h), FP64,
     * fixed order. Not to be recorded. Where h and dz lie there in eight bits alone (by LOW_FAST
     * in fp8_block) they are made again from z as it is kept. */
    void (*low_statistics)(struct backend *be, double *sums, struct low_operand o);

    /* ---- math ---- */
    /* x[i, :] = table[tokens[i], :]; table[V, D] */
    void (*embed)(struct backend *be, real_t *x, const real_t *table, const int32_t *tokens, int N,
                  int D);
    /* dtable[tokens[i], :] += dx[i, :], in order of i */
    void (*embed_backward)(struct backend *be, float *dtable, const real_t *dx,
                           const int32_t *tokens, int N, int D, int V);

    /* sum = x + delta (delta NULL: sum = x, which may be the same array); rstd[N] = 1 /
     * sqrt(mean(sum^2) + eps); y = w * sum * rstd: RMSNorm (Zhang and Sennrich 2019, eq. 4) fused
     * with the residual addition. */
    void (*add_norm)(struct backend *be, real_t *sum, real_t *y, float *rstd, const real_t *x,
                     const real_t *delta, const real_t *w, float eps, int N, int D);
    /* dx[N, D] += the gradient through the norm of dy; dw[D] += its weight's. x is `sum` of
     * add_norm. */
    void (*norm_backward)(struct backend *be, real_t *dx, float *dw, const real_t *dy,
                          const real_t *x, const float *rstd, const real_t *w, int N, int D);

    /* y[N, M] = x[N, D] w[M, D]^T */
    void (*matmul)(struct backend *be, real_t *y, const real_t *x, const real_t *w, int N, int M,
                   int D);
    /* dx[N, D] (+)= dy[N, M] w[M, D]; accumulate 0 overwrites */
    void (*matmul_dx)(struct backend *be, real_t *dx, const real_t *dy, const real_t *w, int N,
                      int M, int D, int accumulate);
    /* dw[M, D] (+)= dy[N, M]^T x[N, D], FP32 */
    void (*matmul_dw)(struct backend *be, float *dw, const real_t *dy, const real_t *x, int N,
                      int M, int D, int accumulate);

    /* Rotates the queries and keys in qkv by position * theta^(-2i/K), half-split pairs (i, i +
     * K/2): RoPE (Su et al. 2021) as Hugging Face lays it out. inverse 1 rotates back (the backward
     * pass). */
    void (*rope)(struct backend *be, real_t *qkv, const int32_t *positions,
                 struct attention_shape s, double theta, int N, int inverse);
    /* The documents of the micro-batch, for the attention calls that follow: tokens cu_seqlens[d]
     * .. cu_seqlens[d + 1] - 1 are document d. cu_seqlens[n + 1] is host memory, borrowed until the
     * next call; cu_seqlens[n] is the number of tokens. */
    void (*documents)(struct backend *be, const int32_t *cu_seqlens, int n);
    /* out[N, H K]: causal attention within each document, scale 1/sqrt(K); lse[N, H] kept for
     * backward. */
    void (*attention)(struct backend *be, real_t *out, float *lse, const real_t *qkv,
                      struct attention_shape s);
    /* The same for documents that go on: document d of the micro-batch holds the positions from
     * past[d] on of a sequence, no two of one sequence. Its keys and values are added to the kept
     * ones; its queries see all of them up to their own position. NULL where there is no such
     * thing: sequences are then run from their beginning. */
    void (*attention_kept)(struct backend *be, real_t *out, float *lse, const real_t *qkv,
                           struct attention_shape s, struct kept kept);
    /* dqkv[N, (H + 2G) K], overwritten */
    void (*attention_backward)(struct backend *be, real_t *dqkv, const real_t *dout,
                               const real_t *out, const float *lse, const real_t *qkv,
                               struct attention_shape s);

    /* Router: logits[N, E] (FP32) = x w^T, w[E, D]; then softmax, top-A of probs + bias (ties:
     * lowest expert id; bias[E] FP32 or NULL), renormalised over the chosen, and the sums in *r. */
    void (*route)(struct backend *be, struct routing *r, float *logits, const real_t *x,
                  const real_t *w, const float *bias, int N, struct moe_shape s);
    /* From dp[N, A] (gradient of r->p), dprobs[E] (added to the gradient of every token's probs)
     * and dz[1] (times 2 lse: gradient of lse): dlogits (scratch [N, E]), then dx += dlogits w,
     * dw (+)= dlogits^T x. */
    void (*route_backward)(struct backend *be, real_t *dx, float *dw, float *dlogits,
                           const struct routing *r, const float *dp, const float *dprobs,
                           const float *dz, const real_t *x, const real_t *w, int N,
                           struct moe_shape s, int accumulate);
    /* The losses that keep the experts evenly used, from a micro-batch's counts[L, E], P[L, E],
     * z[L] and entropy[L]: dprobs[L, E] and dz[1] for route_backward; losses, entropies and
     * own_counts are added to the tally. counts: of all ranks where the loss is taken over the
     * world, else own_counts. */
    void (*balance)(struct backend *be, float *dprobs, float *dz, struct tally tally,
                    const uint32_t *counts, const uint32_t *own_counts, const double *P,
                    const double *z, const double *entropy, struct balance b);

    /* Expert parallelism over the ep group; collective over grid->ep. The caller frees with
     * moe_free. */
    struct moe *(*moe_new)(struct backend *be, struct moe_shape s);
    void (*moe_free)(struct backend *be, struct moe *m);
    size_t (*moe_rows)(struct backend *be,
                       struct moe_shape s); /* largest R, for sizing the arrays below */
    /* From now on m has no rows[R, D] and z[R, 2F] of its own: what moe_dispatch and experts_* get
     * as such are the arrays of the stash, in which the device knows the place. Where the rows do
     * not fit behind those of s.before they are laid at the beginning, over others', which backward
     * passes would miss, and overflow[0] becomes infinite. need[0] and need[1] are raised to the
     * rows of both arrays that this rank's layers as far as m would take. */
    void (*moe_stash)(struct backend *be, struct moe *m, struct stash s);
    /* Tokens that moe_dispatch has sent to each rank of ep so far, [ep_size], this rank's own among
     * them. */
    const uint64_t *(*sent)(struct backend *be);
    /* Sends each token once to every rank that holds one of its experts, and lays the arrivals out
     * by local expert, then by arrival: rows[R, D]. An expert's rows begin at a multiple of
     * row_unit; rows that pad them are zero, here and in moe_combine_backward.
     *
     * With low_rows tokens are rounded before, here and in moe_combine_backward, also those that
     * stay on their rank: to E4M3 in blocks of 1 x 128, cut off at the row's end, under FP32 scales
     * (formats.h). A row is the codes times their scales, in FP32, rounded to the compute type. */
    void (*moe_dispatch)(struct backend *be, struct moe *m, real_t *rows, const real_t *x,
                         const struct routing *r, int N);
    /* For each local expert e with weights up[e][2F, D] (gate first): z[R, 2F] = rows up^T;
     * h[R, F] = p * silu(gate) * up. */
    void (*experts_up)(struct backend *be, struct moe *m, real_t *z, real_t *h, const real_t *rows,
                       const real_t *up);
    /* y[R, D] = h down[e]^T, down[e][D, F] */
    void (*experts_down)(struct backend *be, struct moe *m, real_t *y, const real_t *h,
                         const real_t *down);
    /* Back to the tokens: out[N, D] = sum of a token's A results, by expert within a rank, then by
     * rank. Afterwards y, and drows below, may hold sums: they are not read again. */
    void (*moe_combine)(struct backend *be, struct moe *m, real_t *out, const real_t *y, int N);

    /* The same way backward. dy[R, D] from dout[N, D]. */
    void (*moe_combine_backward)(struct backend *be, struct moe *m, real_t *dy, const real_t *dout,
                                 int N);
    /* dz[R, 2F] and dp_rows[R] from dy; ddown[e][D, F] (+)= dy^T h, with h made again from z. dz
     * may be z itself; h[R, F] is room to work in. */
    void (*experts_down_backward)(struct backend *be, struct moe *m, real_t *dz, float *dp_rows,
                                  struct gradient ddown, const real_t *dy, const real_t *z,
                                  real_t *h, const real_t *down);
    /* drows[R, D] = dz up; dup[e][2F, D] (+)= dz^T rows */
    void (*experts_up_backward)(struct backend *be, struct moe *m, real_t *drows,
                                struct gradient dup, const real_t *dz, const real_t *rows,
                                const real_t *up);
    /* dx[N, D] = sum over a token's rows of drows, dp[N, A] from dp_rows. */
    void (*moe_dispatch_backward)(struct backend *be, struct moe *m, real_t *dx, float *dp,
                                  const real_t *drows, const float *dp_rows, int N);

    /* Cross-entropy fused with the head: logits = x w^T, w[V, D], chunk by chunk, never whole.
     * loss[0] += the sum of weights[i] * (lse - logit[target]) over the targets that count (not
     * -100), FP64. With dx: dx[N, D] = scale[0] * gradient, dw[V, D] (+)= likewise; without
     * (NULL): the loss alone, and scale may be NULL. each[N], FP64, or NULL: every token's part of
     * the sum, 0 where its target does not count. */
    void (*head)(struct backend *be, real_t *dx, float *dw, double *loss, double *each,
                 const real_t *x, const real_t *w, const int32_t *targets, const float *weights,
                 const float *scale, int N, int V, int D, int accumulate);

    /* sum[n] += x[n], FP32 */
    void (*add)(struct backend *be, float *sum, const float *x, size_t n);
    /* sum[0] += the sum of x[i]^2; FP64, fixed order */
    void (*sum_squares)(struct backend *be, double *sum, const float *x, size_t n);
    /* factor[0] = the clip factor min(1, max_norm / (sqrt(norm2[0]) + 1e-6)), 1 when max_norm is 0;
     * -1 when norm2 or one of values[n] is not finite: the step must not be applied. */
    void (*decide)(struct backend *be, float *factor, const double *values, int n,
                   const double *norm2, double max_norm);
    /* AdamW (Loshchilov and Hutter 2019, algorithm 2) with g = factor[0] * grad; nothing at all
     * when factor[0] < 0:
     *
     *     m = beta1 m + (1 - beta1) g
     *     v = beta2 v + (1 - beta2) g^2
     *     w = w (1 - lr decay) - lr (m / correction1) / (sqrt(v / correction2) + eps)
     *
     * on FP32 masters w; weight (compute type) gets the rounded result; where the types are the
     * same it may be the master itself. NULL: nobody keeps it. */
    void (*adamw)(struct backend *be, float *master, real_t *weight, float *m, float *v,
                  const float *grad, const float *factor, size_t n, struct adamw a);

    /* ---- collectives on backend memory; comm is one of grid's; in place ---- */
    void (*all_reduce)(struct backend *be, MPI_Comm comm, float *x, size_t n); /* sum */
    /* x holds sum(counts) elements; afterwards rank r's counts[r], at their place in x, hold the
     * sum */
    void (*reduce_scatter)(struct backend *be, MPI_Comm comm, float *x, const size_t *counts);
    /* The same, added to sum[counts[rank]]; without_own: but for what this rank's x has of them,
     * which may be anything. x is room to work in. */
    void (*reduce_scatter_add)(struct backend *be, MPI_Comm comm, float *sum, float *x,
                               const size_t *counts, int without_own);
    /* rank r's counts[r] elements of x, at their place, go to all */
    void (*all_gather)(struct backend *be, MPI_Comm comm, real_t *x, const size_t *counts);
    void (*sum_uint32)(struct backend *be, MPI_Comm comm, uint32_t *x, size_t n);
    void (*sum_double)(struct backend *be, MPI_Comm comm, double *x, size_t n);
};

/* What a backend is asked to be; all 0 is what `auto` means everywhere. */
struct backend_options {
    enum experts_engine experts;
    enum attention_engine attention;
    enum exchange_engine exchange;    /* of tokens */
    enum exchange_engine collectives; /* beside other work */
    int deterministic;                /* same bits run to run, also where that is slower */
    int fp32;                         /* compute in FP32 also where BF16 is usual */
    int emulate;                      /* products in eight bits by others, also where they are fast;
                                         where there are none of the recipe it is of no account */
    int no_graph;                     /* do not record work */
    int unfused;                      /* grouped kernels leave activations to passes of their own */
    int communication_sms; /* multiprocessors that products leave to communication beside them,
                              through NCCL; a quarter of it over peer memory */
    int exchange_blocks;   /* thread blocks that carry tokens over peer memory; 0: as is usual */
    int low_rows;          /* the backend's */
};

/* 1 if this build has the backend of this name. */
int backend_exists(const char *name);

/* Why it cannot serve this grid, NULL: it can. The caller frees it. Collective over world; every
 * rank may have a reason of its own. (config/check.h has the engines.) */
char *backend_refusal(const char *name, const struct grid *g);

/* The compute capability of this rank's device, 90 for 9.0, which is that of all once there is no
 * refusal; 0 on the CPU. */
int backend_capability(const char *name, const struct grid *g);

/* How devices of this capability, 0: the CPU, compute in a recipe, with this option. */
enum low_way backend_low_way(int capability, enum low low, int emulate);

/* Opens the backend of this name ("cpu", "cuda") on the grid, which is borrowed; options NULL: all
 * 0. Collective over world; the caller has asked for refusals. */
struct backend *backend_open(const char *name, const struct grid *g,
                             const struct backend_options *o);
void backend_close(struct backend *be);

/* Where rank's elements begin, behind those of the ranks before it. */
static inline size_t backend_first(const size_t *counts, int rank) {
    size_t first = 0;
    for (int r = 0; r < rank; r++) first += counts[r];
    return first;
}

/* reduce_scatter_add by reduce_scatter and add. */
void backend_reduce_scatter_add(struct backend *be, MPI_Comm comm, float *sum, float *x,
                                const size_t *counts, int without_own);

/* Element i of a real_t array. */
static inline real_t *real_at(const struct backend *be, const real_t *x, size_t i) {
    return (char *)(uintptr_t)x + i * be->real_bytes;
}
#endif
