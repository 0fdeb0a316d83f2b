/* How our parameters lie among the tensors of a Hugging Face folder; used by the hf_*.c. */
#ifndef REGULON_CHECKPOINT_HF_PIECES_H
#define REGULON_CHECKPOINT_HF_PIECES_H
#include "checkpoint/safetensors.h"
#include "model/params.h"

/* The selection bias, [L, E], in a file of its own: Mixtral's has no place for it. */
#define HF_BIAS_FILE "router_bias.safetensors"
#define HF_BIAS_NAME "router_bias"

/* How a folder names what stands in place of our experts. */
enum hf_naming {
    HF_FUSED, /* mlp.experts.gate_up_proj, gate before up, and down_proj: transformers 5 */
    HF_OLD,   /* block_sparse_moe.experts.N.w1, w3, w2: a tensor an expert */
    HF_DENSE  /* mlp.gate_proj, up_proj, down_proj: Llama's and Mistral's one feed-forward block,
                 which every expert is a copy of; there is no router */
};

/* Where one stretch of a parameter of ours lies among the tensors of a folder: `n` elements from
 * element `first` of the whole tensor named `name` are elements from `at` of our local part. */
struct hf_piece {
    char name[120];
    int n_dims;
    int64_t dims[3]; /* of the tensor in the folder */
    int64_t first, at, n;
    int64_t expert; /* of the layer; 0 for other parameters */
};

/* Calls visit for every piece of parameter t of this rank. */
void hf_each_piece(const struct param *t, enum hf_naming naming,
                   void (*visit)(const struct param *t, const struct hf_piece *p, void *context),
                   void *context);

/* The tensors that a folder of ours has, one an expert, in the order of their data; the same on any
 * grid. Each is elements [first, first + t.n) of parameter `param` of the whole model. */
struct hf_part {
    int param;
    int64_t first;
};
struct hf_list {
    struct safetensor *tensors; /* [n] name, dtype, dims, n */
    struct hf_part *parts;      /* [n] */
    int n;
};
/* `p`: the whole model's table. dtype: "F32" or "BF16". hf_list_free frees it. */
struct hf_list hf_list_new(const struct params *p, const char *dtype);
void hf_list_free(struct hf_list *l);
#endif
