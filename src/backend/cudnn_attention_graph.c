/* Flash attention (Dao et al. 2022, algorithms 1 and 4) in the patterns of operations that cuDNN
 * has an engine for; others are refused, or accepted and computed wrongly, so what looks arbitrary
 * here is what was measured (cuDNN 9.14 and 9.19, H200). In particular: K and V enter transposed;
 * the probabilities are BF16; the products carry the documents' lengths, without which the kernels
 * read past the end; the accumulated dQ has the strides and places of dQ; dK and dV of each query
 * head have rows H/G times as wide as dK and dV and the places of those, which the engine scales.
 * No padding mask: the causal mask implies it when queries and keys are equally many, and leaving
 * it out gains 6 to 9 % forward, 2 to 5 % backward (2026-11-29). */
#include "config.h"
#include "backend/cudnn_attention_graph.h"
#include <math.h>

struct build {
    struct cudnn_graph *g;
    int64_t b, s, H, G, K, W; /* b places for documents of up to s tokens */
    cudnn_tensor lengths_q, lengths_kv, at_wide, at_head, scale, minus_infinity;
};

static cudnn_tensor integers(struct cudnn_graph *g, int slot, int64_t n) {
    struct cudnn_view view = {{n, 1, 1, 1}, {1, 1, 1, 1}};
    return cudnn_graph_bound(g, slot, CUDNN_DATA_INT32, view, NULL);
}

static struct build start(struct cudnn_graph *g, const struct cudnn_attention_sizes *s) {
    struct build c = {.g = g, .b = s->documents, .s = s->longest, .H = s->H, .G = s->G, .K = s->K};
    c.W = (c.H + 2 * c.G) * c.K;
    c.lengths_q = integers(g, SLOT_LENGTHS_Q, c.b);
    c.lengths_kv = integers(g, SLOT_LENGTHS_KV, c.b);
    c.at_wide = integers(g, SLOT_AT_WIDE, c.b + 1);
    c.at_head = integers(g, SLOT_AT_HEAD, c.b + 1);
    c.scale = cudnn_graph_value(g, 1 / sqrtf((float)s->K));
    c.minus_infinity = cudnn_graph_value(g, -INFINITY);
    return c;
}

/* ---- views [document, head, token, element of the head] ---- */

/* of rows of tokens, `row` elements apart */
static struct cudnn_view heads(const struct build *c, int64_t n_heads, int64_t row) {
    return (struct cudnn_view){{c->b, n_heads, c->s, c->K}, {c->s * row, c->K, row, 1}};
}

static struct cudnn_view transposed(struct cudnn_view v) {
    return (struct cudnn_view){{v.dim[0], v.dim[1], v.dim[3], v.dim[2]},
                               {v.stride[0], v.stride[1], v.stride[3], v.stride[2]}};
}

static cudnn_tensor bound(const struct build *c, int slot, struct cudnn_view view,
                          cudnn_tensor at) {
    return cudnn_graph_bound(c->g, slot, CUDNN_DATA_BFLOAT16, view, at);
}

/* one number for each token and head, [N, H] in memory */
static cudnn_tensor bound_per_head(const struct build *c, int slot) {
    struct cudnn_view view = {{c->b, c->H, c->s, 1}, {c->H * c->s, 1, c->H, 1}};
    return cudnn_graph_bound(c->g, slot, CUDNN_DATA_FLOAT, view, c->at_head);
}

static cudnn_tensor per_head(const struct build *c) {
    struct cudnn_view view = {{c->b, c->H, c->s, 1}, {c->H * c->s, c->s, 1, 1}};
    return cudnn_graph_virtual(c->g, CUDNN_DATA_FLOAT, view, NULL);
}

/* a number for each query and key */
static struct cudnn_view square(const struct build *c) {
    return (struct cudnn_view){{c->b, c->H, c->s, c->s},
                               {c->H * c->s * c->s, c->s * c->s, c->s, 1}};
}

static cudnn_tensor scores(const struct build *c, cudnnDataType_t type) {
    return cudnn_graph_virtual(c->g, type, square(c), NULL);
}

/* ---- arithmetic ---- */

static cudnn_tensor unary(const struct build *c, cudnnPointwiseMode_t mode, cudnn_tensor x,
                          cudnn_tensor y) {
    return cudnn_graph_pointwise(c->g, mode, CUDNN_DATA_FLOAT, x, NULL, NULL, y);
}

static cudnn_tensor binary(const struct build *c, cudnnPointwiseMode_t mode, cudnn_tensor a,
                           cudnn_tensor b, cudnn_tensor y) {
    return cudnn_graph_pointwise(c->g, mode, CUDNN_DATA_FLOAT, a, b, NULL, y);
}

/* on scores; returns new ones */
static cudnn_tensor on_scores(const struct build *c, cudnnPointwiseMode_t mode, cudnn_tensor a,
                              cudnn_tensor b) {
    return binary(c, mode, a, b, scores(c, CUDNN_DATA_FLOAT));
}

/* scale q k^T */
static cudnn_tensor scaled_product(const struct build *c, cudnn_tensor q, cudnn_tensor kt) {
    cudnn_tensor x = cudnn_graph_matmul(c->g, q, kt, c->lengths_q, c->lengths_kv, NULL,
                                        scores(c, CUDNN_DATA_FLOAT));
    return on_scores(c, CUDNN_POINTWISE_MUL, x, c->scale);
}

/* x where the query is not before the key, -inf elsewhere */
static cudnn_tensor causal(const struct build *c, cudnn_tensor x) {
    cudnn_tensor query = cudnn_graph_index(c->g, 2, x, scores(c, CUDNN_DATA_INT32)),
                 key = cudnn_graph_index(c->g, 3, x, scores(c, CUDNN_DATA_INT32)),
                 seen = cudnn_graph_pointwise(c->g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN,
                                              query, key, NULL, scores(c, CUDNN_DATA_BOOLEAN));
    return cudnn_graph_pointwise(c->g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, x,
                                 c->minus_infinity, seen, scores(c, CUDNN_DATA_FLOAT));
}

void cudnn_attention_forward_graph(struct cudnn_graph *g, const struct cudnn_attention_sizes *s) {
    struct build build = start(g, s), *c = &build;
    cudnn_tensor at_qkv = integers(g, SLOT_AT_QKV, c->b + 1),
                 q = bound(c, SLOT_Q, heads(c, c->H, c->W), at_qkv),
                 kt = bound(c, SLOT_K, transposed(heads(c, c->G, c->W)), at_qkv),
                 v = bound(c, SLOT_V, heads(c, c->G, c->W), at_qkv),
                 out = bound(c, SLOT_OUT, heads(c, c->H, c->H * c->K), c->at_wide);

    cudnn_tensor x = causal(c, scaled_product(c, q, kt)),
                 most = cudnn_graph_reduce(g, CUDNN_REDUCE_TENSOR_MAX, x, per_head(c)),
                 e = unary(c, CUDNN_POINTWISE_EXP, on_scores(c, CUDNN_POINTWISE_SUB, x, most),
                           scores(c, CUDNN_DATA_FLOAT)),
                 sum = cudnn_graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, e, per_head(c)),
                 log = unary(c, CUDNN_POINTWISE_LOG, sum, per_head(c));
    binary(c, CUDNN_POINTWISE_ADD, most, log, bound_per_head(c, SLOT_LSE));
    cudnn_tensor p = binary(c, CUDNN_POINTWISE_DIV, e, sum, scores(c, CUDNN_DATA_BFLOAT16));
    cudnn_graph_matmul(g, p, v, c->lengths_q, NULL, c->lengths_kv, out);
}

/* d[key] = sum over the query heads of its group of x^T[key, query] y[query]; x[query, key] */
static void gradient_of_key(const struct build *c, cudnn_tensor x, cudnn_tensor y, int slot,
                            int wide_slot, cudnn_tensor at) {
    cudnn_tensor xt = cudnn_graph_virtual(c->g, CUDNN_DATA_BFLOAT16, transposed(square(c)), NULL),
                 d = bound(c, slot, heads(c, c->G, c->G * c->K), at), wide = d;
    cudnn_graph_reshape(c->g, x, xt);
    if (c->H != c->G) wide = bound(c, wide_slot, heads(c, c->H, c->H * c->K), at);
    cudnn_graph_matmul(c->g, xt, y, c->lengths_kv, NULL, c->lengths_q, wide);
    if (c->H != c->G) cudnn_graph_reduce(c->g, CUDNN_REDUCE_TENSOR_ADD, wide, d);
}

/* dq[query] = sum over keys of ds[query, key] k[key], in FP32 with atomic additions first, or by
 * way of a ds in the plan's workspace */
static void gradient_of_query(const struct build *c, cudnn_tensor ds, cudnn_tensor kt,
                              cudnn_tensor at_narrow, int deterministic) {
    cudnn_tensor k =
        cudnn_graph_virtual(c->g, CUDNN_DATA_BFLOAT16, heads(c, c->G, c->G * c->K), at_narrow);
    struct cudnn_view rows = heads(c, c->H, c->H * c->K);
    cudnn_graph_reshape(c->g, kt, k);
    cudnn_tensor dq = bound(c, SLOT_DQ, rows, c->at_wide), sum = dq;
    if (!deterministic)
        sum = cudnn_graph_bound(c->g, SLOT_DQ_SUM, CUDNN_DATA_FLOAT, rows, c->at_wide);
    cudnn_graph_matmul(c->g, ds, k, c->lengths_q, NULL, c->lengths_kv, sum);
    if (!deterministic) unary(c, CUDNN_POINTWISE_IDENTITY, sum, dq);
}

void cudnn_attention_backward_graph(struct cudnn_graph *g, const struct cudnn_attention_sizes *s) {
    struct build build = start(g, s), *c = &build;
    struct cudnn_view rows = heads(c, c->H, c->H * c->K),
                      keys = transposed(heads(c, c->G, c->G * c->K));
    cudnn_tensor narrow = integers(g, SLOT_AT_NARROW, c->b + 1),
                 q = bound(c, SLOT_Q, rows, c->at_wide), kt = bound(c, SLOT_K, keys, narrow),
                 vt = bound(c, SLOT_V, keys, narrow), out = bound(c, SLOT_OUT, rows, c->at_wide),
                 dout = bound(c, SLOT_DOUT, rows, c->at_wide), lse = bound_per_head(c, SLOT_LSE),
                 row_sum = bound_per_head(c, SLOT_ROW_SUM);

    /* row_sum = sum over the head of dout out */
    struct cudnn_view whole = {{c->b, c->H, c->s, c->K},
                               {c->H * c->s * c->K, c->s * c->K, c->H * c->K, 1}};
    cudnn_tensor product = binary(c, CUDNN_POINTWISE_MUL, dout, out,
                                  cudnn_graph_virtual(g, CUDNN_DATA_FLOAT, whole, NULL));
    binary(c, CUDNN_POINTWISE_MUL,
           cudnn_graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, product, per_head(c)),
           cudnn_graph_value(g, 1), row_sum);

    /* p = exp(scale q k^T - lse); dv = p^T dout */
    cudnn_tensor x = on_scores(c, CUDNN_POINTWISE_SUB, scaled_product(c, q, kt), lse),
                 p = unary(c, CUDNN_POINTWISE_EXP, causal(c, x), scores(c, CUDNN_DATA_FLOAT));
    gradient_of_key(c, p, dout, SLOT_DV, SLOT_DV_WIDE, narrow);

    /* ds = (dout v^T - row_sum) p scale; dk = ds^T q; dq = ds k */
    cudnn_tensor dp = cudnn_graph_matmul(g, dout, vt, c->lengths_q, c->lengths_kv, NULL,
                                         scores(c, CUDNN_DATA_FLOAT)),
                 ds = on_scores(c, CUDNN_POINTWISE_SUB, dp, row_sum);
    ds = on_scores(c, CUDNN_POINTWISE_MUL, ds, p);
    ds = on_scores(c, CUDNN_POINTWISE_MUL, ds, c->scale);
    gradient_of_key(c, ds, q, SLOT_DK, SLOT_DK_WIDE, narrow);
    gradient_of_query(c, ds, kt, narrow, s->deterministic);
}
