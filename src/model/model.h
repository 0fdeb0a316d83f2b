/* The model of one rank: its parameters, gradients and activations, and the forward and backward
 * pass of one micro-batch. Mixtral (Jiang et al. 2024): pre-norm, grouped-query attention, top-A
 * experts. */
#ifndef REGULON_MODEL_MODEL_H
#define REGULON_MODEL_MODEL_H
#include "backend/backend.h"
#include "data/batch.h"
#include "model/params.h"
#include "model/shape.h"

/* What a layer keeps from its forward pass for its backward pass. N = capacity; R rows at most
 * (moe_rows). */
struct layer_state {
    real_t *x1, *xn1; /* [N, D] residual stream into the layer; after norm1 */
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
    real_t *h;    /* [R, F] after it */
};

struct model {
    const struct config *config; /* borrowed */
    struct backend *be;          /* borrowed */
    struct shape s;
    struct attention_shape attention;
    struct moe_shape moe;
    struct params *params;
    int capacity;    /* largest N */
    real_t *weights; /* [params->size] */
    float *grads;    /* [params->size], NULL for a model that only evaluates */
    float *bias;     /* [L, E] selection bias of the router, backend memory */
    struct layer_state *layers;

    /* the micro-batch, in backend memory */
    int N;
    int32_t *tokens, *targets, *positions;
    float *target_weights;
    const struct batch *batch; /* borrowed until the next model_forward */

    /* shared by the layers */
    real_t *x, *xn,
        *delta; /* [N, D] the stream after the last layer; after the last norm; what a block adds */
    float *rstd;              /* [N] */
    float *logits;            /* [N, E] of the router, then their gradient */
    real_t *dx, *dxn;         /* [N, D] */
    real_t *dattended, *dqkv; /* [N, H K], [N, (H + 2G) K] */
    real_t *y; /* [R, D] experts' results; backward their gradient, then that of the rows */
    float *dp, *dp_rows; /* [N, A], [R] */

    /* host: the routing of the micro-batch, by layer, and sums over the micro-batches since
     * model_reset */
    uint32_t *counts; /* [L, E], then N: tokens for an expert, this micro-batch (balance_over world:
                         all ranks') */
    double *P;        /* [L, E] sum of probabilities */
    double *entropy, *z;  /* [L] */
    float *balance;       /* [L, E] gradient of the auxiliary loss */
    uint32_t *counts_sum; /* [L, E] over the micro-batches of a step */
    double *entropy_sum;  /* [L] */
    double loss_sum, aux_sum, z_sum;
    double forward_s, backward_s; /* seconds, the exchange not included */
};

/* Weights are not set. capacity: largest micro-batch in tokens. The caller frees it. */
struct model *model_new(const struct config *c, struct backend *be, int capacity,
                        int with_gradients);
void model_free(struct model *m);
void model_init(struct model *m, uint64_t seed);

/* Forward pass up to the last norm (m->xn[N, D]). Collective over grid->ep. The batch is borrowed.
 */
void model_forward(struct model *m, const struct batch *b);

/* Sum of weight * -log p over the batch's targets, FP64. After model_forward. */
double model_loss(struct model *m);

/* Loss and gradients of the micro-batch, added to m->grads and to the sums. Collective over
 * grid->ep, and over world when router.balance_over is world. loss_scale = 1 / W and balance_weight
 * = 1 / M (or 1 / grad_acc_steps) as in rule 1: L = sum of w (-log p) / W + sum over micro-batches
 * of (aux + z) * balance_weight. After model_forward. */
void model_backward(struct model *m, double loss_scale, double balance_weight);

/* Zeroes gradients and sums: the start of a step. */
void model_reset(struct model *m);

/* Logits [N, V] of the last model_forward into backend memory, for tests and small uses. */
void model_logits(struct model *m, real_t *logits);
#endif
