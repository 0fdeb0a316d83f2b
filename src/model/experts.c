#include "config.h"
#include "model/block.h"
#include "model/low_statistics.h"

void experts_forward(struct model *m, int layer) {
    struct backend *be = m->be;
    struct layer_state *y = &m->layers[layer];
    const struct layer_params *p = &m->params->layers[layer];
    int N = m->N;
    const float *bias = m->biased ? m->bias + (size_t)layer * (size_t)m->s.E : NULL;
    be->route(be, &y->routing, m->logits, y->xn2, model_weight(m, p->router), bias, N, m->moe);
    be->moe_dispatch(be, y->moe, y->rows, y->xn2, &y->routing, N);
    eight_bits_begin(m, layer);
    be->experts_up(be, y->moe, y->z, y->h, y->rows, model_operand(m, p->up));
    be->experts_down(be, y->moe, m->y, y->h, model_operand(m, p->down));
    eight_bits_end(m);
    be->moe_combine(be, y->moe, m->delta, m->y, N);
}

void experts_backward(struct model *m, int layer) {
    struct backend *be = m->be;
    struct layer_state *y = &m->layers[layer];
    const struct layer_params *p = &m->params->layers[layer];
    int N = m->N;
    be->moe_combine_backward(be, y->moe, m->y, m->dx, N);
    eight_bits_begin(m, layer);
    be->experts_down_backward(be, y->moe, y->z, m->dp_rows, model_gradient(m, p->down), m->y, y->z,
                              y->h, model_operand(m, p->down));
    low_statistics_experts(m, layer);
    be->experts_up_backward(be, y->moe, m->y, model_gradient(m, p->up), y->z, y->rows,
                            model_operand(m, p->up));
    eight_bits_end(m);
    be->moe_dispatch_backward(be, y->moe, m->dxn, m->dp, m->y, m->dp_rows, N);
    be->route_backward(be, m->dxn, model_grad(m, p->router), m->logits, &y->routing, m->dp,
                       m->dprobs + (size_t)layer * (size_t)m->s.E, m->dz, y->xn2,
                       model_weight(m, p->router), N, m->moe, model_adds(m, p->router));
}
