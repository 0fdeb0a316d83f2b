/* The two blocks of a layer, forward and backward beside each other; used by the model's files
 * only. */
#ifndef REGULON_MODEL_BLOCK_H
#define REGULON_MODEL_BLOCK_H
#include "model/low.h"
#include "model/model.h"
#include "model/stage.h"

/* Weight i of the table in compute type, its gradient in FP32; of a staged one, which must be of
 * the stage that there is now, in that stage's rooms. */
static inline real_t *model_weight(const struct model *m, int i) {
    const struct share *s = &m->shares[i];
    const struct stages *y = m->stages;
    return s->staged ? real_at(m->be, y->weights[y->now % ROOMS], y->place[i])
                     : real_at(m->be, m->weights, s->weight);
}
/* What products take as weight i, the first of its matrix: copies in eight bits where it has any.
 */
static inline const real_t *model_operand(const struct model *m, int i) {
    return m->low_copies && m->low_copies[i] ? m->low_copies[i] : model_weight(m, i);
}
static inline float *model_grad(const struct model *m, int i) {
    const struct share *s = &m->shares[i];
    const struct stages *y = m->stages;
    return s->staged ? y->grads[y->now % ROOMS] + y->place[i] : m->grads + s->grad;
}
/* 1: the gradients of earlier micro-batches lie there, and are added to. */
static inline int model_adds(const struct model *m, int i) {
    return m->has_grads && !m->shares[i].staged;
}

/* Where products leave the gradient of experts' matrix i. */
static inline struct gradient model_gradient(const struct model *m, int i) {
    struct gradient g = gradient_whole(model_grad(m, i), model_adds(m, i));
    if (!stage_direct(m, i)) return g;
    size_t cols = (size_t)m->params->list[i].cols;
    g.own = model_own_grad(m, i), g.own_add = m->has_grads;
    g.first = m->shares[i].first / cols, g.rows = m->shares[i].n / cols;
    return g;
}

/* From here on projections and experts are the layer's, in eight bits where it has a recipe; and no
 * longer: the router's products, the head's and attention never are. */
static inline void eight_bits_begin(struct model *m, int layer) {
    m->be->low = low_layer(m->config, layer);
}
static inline void eight_bits_end(struct model *m) {
    m->be->low = LOW_NONE;
}

/* m->delta = attention(xn1); dxn = its gradient given dx = gradient of delta. */
void attention_forward(struct model *m, int layer);
void attention_backward(struct model *m, int layer);

/* m->delta = experts(xn2); dxn likewise, with the auxiliary losses' gradient in m->dprobs and
 * m->dz. */
void experts_forward(struct model *m, int layer);
void experts_backward(struct model *m, int layer);
#endif
