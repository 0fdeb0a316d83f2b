/* The two blocks of a layer, forward and backward beside each other; used by model.c only. */
#ifndef REGULON_MODEL_BLOCK_H
#define REGULON_MODEL_BLOCK_H
#include "model/model.h"

/* Weight i of the table in compute type, its gradient in FP32. */
static inline real_t *model_weight(const struct model *m, int i) {
    return real_at(m->be, m->weights, m->params->list[i].offset);
}
static inline float *model_grad(const struct model *m, int i) {
    return m->grads + m->shares[i].grad;
}

/* m->delta = attention(xn1); dxn = its gradient given dx = gradient of delta. */
void attention_forward(struct model *m, int layer);
void attention_backward(struct model *m, int layer);

/* m->delta = experts(xn2); dxn likewise, with the auxiliary losses' gradient in m->dprobs and
 * m->dz. */
void experts_forward(struct model *m, int layer);
void experts_backward(struct model *m, int layer);
#endif
