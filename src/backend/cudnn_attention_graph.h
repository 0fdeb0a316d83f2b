/* The two graphs of causal attention of packed documents. */
#ifndef REGULON_BACKEND_CUDNN_ATTENTION_GRAPH_H
#define REGULON_BACKEND_CUDNN_ATTENTION_GRAPH_H
#include "backend/cudnn_attention.h"

/* What is bound. W = (H + 2G) K. Lengths are int32 [documents], places int32 [documents + 1]: where
 * each document begins, in elements of rows as wide as stated. */
enum cudnn_attention_slot {
    SLOT_Q, /* bf16: forward in qkv, its rows and those of K and V W apart; backward [N, H K] */
    SLOT_K, /* backward [N, G K], as is V */
    SLOT_V,
    SLOT_OUT,  /* bf16 [N, H K], as is DOUT */
    SLOT_LSE,  /* f32 [N, H], as is ROW_SUM */
    SLOT_DOUT, /* from here on: backward only */
    SLOT_DQ,   /* bf16 [N, H K] */
    SLOT_DK,   /* bf16 [N, G K], as is DV */
    SLOT_DV,
    SLOT_DQ_SUM,  /* f32 [N, H K], not if deterministic */
    SLOT_DK_WIDE, /* bf16 [N, H K], as is DV_WIDE: of each query head; not if H is G */
    SLOT_DV_WIDE,
    SLOT_ROW_SUM,
    SLOT_LENGTHS_Q, /* the lengths; the same memory may serve twice */
    SLOT_LENGTHS_KV,
    SLOT_AT_QKV,    /* places, rows W wide */
    SLOT_AT_WIDE,   /* H K wide */
    SLOT_AT_NARROW, /* G K wide */
    SLOT_AT_HEAD,   /* H wide */
    SLOTS
};

/* Add the operations to an empty graph. */
void cudnn_attention_forward_graph(struct cudnn_graph *g, const struct cudnn_attention_sizes *s);
void cudnn_attention_backward_graph(struct cudnn_graph *g, const struct cudnn_attention_sizes *s);
#endif
