#include "config.h"
#include "model/shape.h"

struct shape shape_of(const struct config *c) {
    struct shape s = {
        .D = (int)c->model.hidden_size,
        .H = (int)c->model.num_attention_heads,
        .G = (int)c->model.num_key_value_heads,
        .K = (int)c->model.head_dim,
        .F = (int)c->model.intermediate_size,
        .E = (int)c->model.num_local_experts,
        .A = (int)c->model.num_experts_per_tok,
        .L = (int)c->model.num_hidden_layers,
        .V = (int)c->model.vocab_size,
        .window = (int)c->model.sliding_window,
        .tied = c->model.tie_word_embeddings,
        .eps = (float)c->model.rms_norm_eps,
        .theta = c->model.rope_theta,
    };
    if (s.G == 0) s.G = s.H;
    if (s.K == 0) s.K = s.D / s.H;
    return s;
}

/* Weights of the matrices that every token meets in one layer, experts aside. */
static double layer_dense(const struct shape *s) {
    double D = s->D, heads = 2.0 * s->H + 2.0 * s->G;
    return heads * s->K * D + (double)s->E * D;
}

static double expert(const struct shape *s) {
    return 3.0 * s->F * s->D;
}

double shape_flops(const struct shape *s, double tokens, double sum_len2) {
    double active = s->L * (layer_dense(s) + s->A * expert(s)) + (double)s->V * s->D;
    return 6 * active * tokens + 6.0 * s->L * s->H * s->K * sum_len2;
}
