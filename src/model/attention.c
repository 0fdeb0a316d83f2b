#include "config.h"
#include "model/block.h"

void attention_forward(struct model *m, int layer) {
    struct backend *be = m->be;
    struct layer_state *y = &m->layers[layer];
    const struct layer_params *p = &m->params->layers[layer];
    int N = m->N, D = m->s.D, HK = m->s.H * m->s.K;
    /* qkv[N, (H+2G)K] = xn1 Wqkv^T, rotated; attended[N, HK]; delta[N, D] = attended Wo^T */
    eight_bits_begin(m, layer);
    be->matmul(be, y->qkv, y->xn1, model_operand(m, p->q), N, qkv_width(&m->s), D);
    if (y->xn1_low) be->low_keep(be, y->xn1_low, y->xn1, N, D);
    be->rope(be, y->qkv, m->positions, m->attention, m->s.theta, N, /*inverse=*/0);
    if (m->kept)
        be->attention_kept(be, y->attended, y->lse, y->qkv, m->attention,
                           kept_layer(m->kept, layer));
    else
        be->attention(be, y->attended, y->lse, y->qkv, m->attention);
    be->matmul(be, m->delta, y->attended, model_operand(m, p->o), N, D, HK);
    eight_bits_end(m);
}

void attention_backward(struct model *m, int layer) {
    struct backend *be = m->be;
    struct layer_state *y = &m->layers[layer];
    const struct layer_params *p = &m->params->layers[layer];
    int N = m->N, D = m->s.D, HK = m->s.H * m->s.K, width = qkv_width(&m->s);
    eight_bits_begin(m, layer);
    be->matmul_dw(be, model_grad(m, p->o), m->dx, y->attended, N, D, HK, model_adds(m, p->o));
    be->matmul_dx(be, m->dattended, m->dx, model_operand(m, p->o), N, D, HK, /*accumulate=*/0);
    be->attention_backward(be, m->dqkv, m->dattended, y->attended, y->lse, y->qkv, m->attention);
    be->rope(be, m->dqkv, m->positions, m->attention, m->s.theta, N, /*inverse=*/1);
    float *dw = model_grad(m, p->q);
    if (y->xn1_low)
        be->matmul_dw_kept(be, dw, m->dqkv, y->xn1_low, N, width, D, model_adds(m, p->q));
    else
        be->matmul_dw(be, dw, m->dqkv, y->xn1, N, width, D, model_adds(m, p->q));
    be->matmul_dx(be, m->dxn, m->dqkv, model_operand(m, p->q), N, width, D, /*accumulate=*/0);
    eight_bits_end(m);
}
