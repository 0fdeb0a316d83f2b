/* The model of one rank: its parameters, gradients and activations, and the forward and backward
 * pass of one micro-batch. Mixtral (Jiang et al. 2024): pre-norm, grouped-query attention, top-A
 * experts. */
#ifndef REGULON_MODEL_MODEL_H
#define REGULON_MODEL_MODEL_H
#include "backend/backend.h"
#include "data/batch.h"
#include "model/kept.h"
#include "model/params.h"
#include "model/shape.h"
#include "model/share.h"

struct stages;

/* What the backward pass of a layer needs of its forward pass. N = capacity; R rows at most
 * (moe_rows). Routing and moe are the layer's own, the others where memory.recompute says so: see
 * recompute.c. */
struct layer_state {
    real_t *x1, *xn1; /* [N, D] residual stream into the layer; after norm1 */
    void *xn1_low;    /* what the backward pass has in place of xn1: of low_keep; NULL: xn1 */
    float *rstd1;     /* [N] */
    real_t *qkv;      /* [N, (H + 2G) K] after RoPE */
    real_t *attended; /* [N, H K] */
    float *lse;       /* [N, H] */
    real_t *x2, *xn2; /* [N, D] residual stream into the experts; after norm2 */
    float *rstd2;     /* [N] */
    struct routing routing;
    struct moe *moe;
    real_t *rows; /* [R, D] what the experts got */
    real_t *z;    /* [R, 2F] gate and up, before the activation */
    real_t *h;    /* [R, F] after it; no layer keeps it */
};

/* What a step sums up, in backend memory, doubles[SUMS_ENTROPY + L] and then counts[L, E]: of the
 * micro-batches since model_reset, and what the training step adds (from SUMS_STEP on). */
enum {
    SUMS_LOSS, /* weight * -log p over the targets */
    SUMS_AUX,  /* auxiliary losses by the micro-batches' weight, without coefficients */
    SUMS_Z,
    SUMS_OVERFLOW, /* infinite when a rank's stash was too small: see moe_stash in backend.h */
    SUMS_NORM2,    /* squared norm of the gradient: this rank's part */
    SUMS_STEP,
    SUMS_ENTROPY = SUMS_STEP + 24 /* [L] of the router, summed over tokens */
};

struct model {
    const struct config *config; /* borrowed */
    struct backend *be;          /* borrowed */
    struct shape s;
    struct attention_shape attention;
    struct moe_shape moe;
    struct params *params;
    int depth;            /* layers that the forward pass goes through: s.L, or fewer for what only
                             wants m->x after them; set before the first one, which a backend may
                             have recorded afterwards */
    int capacity;         /* largest N */
    real_t *weights;      /* [sizes.weights] */
    struct share *shares; /* [params->n] what this rank updates */
    struct share_sizes sizes;
    struct stages *stages; /* stage.h; NULL: all tensors are kept whole */
    void **low_copies;     /* [params->n] low_copies.h: of weights in eight bits; NULL: none */
    char *low_stale;       /* [params->n] 1: these are to be made before the next forward pass */
    double *low_sums;      /* low_statistics.h: [L, N_LOW_KINDS, N_LOW_SUMS]; NULL: never wanted */
    int sampled;           /* the step is one that they are taken of; set and taken back between
                              steps, with low_sums alone */
    float *masters;        /* [sizes.masters] FP32 weights of the shares; NULL where the weights
                              themselves are FP32, and all kept: see model_master */
    float *grads;          /* [sizes.grads], NULL for a model that only evaluates */
    int has_grads;         /* since model_reset: the next micro-batch adds, else it overwrites */
    int reduce_beside;     /* reduce.h: gradients travel beside the backward pass */
    int last;              /* the micro-batch is the step's last one; the step's to say */
    int reduces, reduced;  /* the pass is one that they travel beside; they have, since then */
    float *bias;           /* [L, E] selection bias of the router, backend memory */
    int biased;            /* it takes part: it moves, or was given */
    struct layer_state *layers;
    struct layer_state shared; /* the rooms of what layers do not keep; NULL where all do */
    struct layer_state stash;  /* rows and z of all layers that keep them; NULL: each has its own */
    int stashed, stashed_z;    /* layers whose rows and z lie there */
    double *stash_need;        /* [2] rows that these would have needed since model_reset, backend
                                  memory; NULL without a stash */

    /* the micro-batch, in backend memory */
    int N;
    int32_t *tokens, *targets, *positions;
    float *target_weights, *loss_scale;
    const struct batch *batch;   /* borrowed until the next model_forward */
    const struct kept_all *kept; /* of model_continue, borrowed; NULL: documents are whole */

    /* shared by the layers */
    real_t *x, *xn,
        *delta; /* [N, D] the stream after the last layer; after the last norm; what a block adds */
    float *rstd;              /* [N] */
    float *logits;            /* [N, E] of the router, then their gradient */
    real_t *dx, *dxn;         /* [N, D] */
    real_t *dattended, *dqkv; /* [N, H K], [N, (H + 2G) K] */
    real_t *y; /* [R, D] experts' results; backward their gradient, then that of the rows */
    float *dp, *dp_rows; /* [N, A], [R] */

    /* the routing of the micro-batch, by layer, backend memory */
    uint32_t *counts;     /* [L, E] tokens for an expert */
    uint32_t *all_counts; /* [L, E] those of all ranks; NULL unless balance_over is world */
    double *P;            /* [L, E] sum of probabilities */
    double *entropy, *z;  /* [L] */
    float *dprobs, *dz;   /* [L, E], [1] gradient of the auxiliary losses */
    double *sums;         /* see above */

    /* host memory: what was read back last */
    double *host_sums; /* of sums */
    float *host_bias;  /* [L, E] */
};

/* Bytes of m->sums, and the counts behind its doubles (in a copy of it, too). */
size_t model_sums_bytes(const struct model *m);
uint32_t *model_sums_counts(const struct model *m, double *sums);

/* Weights are not set. capacity: largest micro-batch in tokens. Without gradients weights are kept
 * whole, also with parallelism.shard full. The caller frees it. */
struct model *model_new(const struct config *c, struct backend *be, int capacity,
                        int with_gradients);
void model_free(struct model *m);
void model_init(struct model *m, uint64_t seed); /* the weights that a run starts with */

/* Values [first, first + n) of this rank's part of parameter i, of what it keeps of them, FP32 in
 * host memory: weights, and of the masters what is among them. Of what is made of the masters the
 * next pass gathers the shares: the same tensors are put on all ranks. */
void model_put(struct model *m, int i, size_t first, size_t n, const float *values);

/* The selection bias bias[L, E], host memory; what is not all 0 takes part in routing from here on.
 */
void model_set_bias(struct model *m, const float *bias);

/* The FP32 master weights of share i, [shares[i].n]; they may be the weights themselves. */
float *model_master(const struct model *m, int i);

/* The weights, NULL where they are not kept, and the gradients of share i, [shares[i].n]. */
real_t *model_own_weight(const struct model *m, int i);
float *model_own_grad(const struct model *m, int i);

/* Weight i, all of this rank's part; where it is not kept it is made, or gathered, and there until
 * the next call or pass. Collective over share_group; the same calls in the same order on all
 * ranks. */
real_t *model_whole(struct model *m, int i);

/* The masters of share i have changed, and its weights where they are kept: others get them.
 * Collective over share_group. */
void model_spread(struct model *m, int i);

/* The weights from the masters of all ranks. Collective over world. */
void model_publish(struct model *m);

/* Weights have changed otherwise than by the calls above, number i or all: what was gathered of
 * them, or made in eight bits, is out of date. */
void model_forget_weight(struct model *m, int i);
void model_forget(struct model *m);

/* Forward pass up to the last norm (m->xn[N, D]). Collective over grid->ep, and over world where
 * weights are not kept whole. The batch is borrowed. */
void model_forward(struct model *m, const struct batch *b);

/* The same for documents that go on: a batch made with kept_append, whose keys and values join the
 * kept ones. Only where the backend has attention_kept; no backward pass. Collective over grid->ep.
 */
void model_continue(struct model *m, const struct batch *b, struct kept_all *kept);

/* Adds weight * -log p over the batch's targets to loss[1], backend memory, FP64; each[N], the
 * same, or NULL: every token's part, 0 where its target does not count. After model_forward; where
 * weights are not kept whole it is collective over world, and so are model_logits and
 * model_logits_of. */
void model_loss(struct model *m, double *loss, double *each);

/* The auxiliary losses of the micro-batch at this weight: their gradients for the backward pass,
 * and its part of the sums. model_backward calls it. Collective over world when router.balance_over
 * is world. After model_forward. */
void model_balance(struct model *m, double weight);

/* Loss and gradients of the micro-batch, added to m->grads and to the sums. Collective over
 * grid->ep, and over world when router.balance_over is world or weights are not kept whole: then
 * the shares of the gradients of staged tensors are sums over the grid, others' are not.
 * loss_scale = 1 / W and balance_weight
 * = 1 / M (or 1 / grad_acc_steps) as in rule 1: L = sum of w (-log p) / W + sum over micro-batches
 * of (aux + z) * balance_weight. After model_forward. */
void model_backward(struct model *m, double loss_scale, double balance_weight);

/* The start of a step: sums are zero, gradients begin anew. */
void model_reset(struct model *m);

/* Logits [N, V] of the last model_forward into backend memory, for tests and small uses. */
void model_logits(struct model *m, real_t *logits);

/* The same of tokens rows[n] alone, [n, V]; n may be 0. */
void model_logits_of(struct model *m, const int *rows, int n, real_t *logits);
#endif
