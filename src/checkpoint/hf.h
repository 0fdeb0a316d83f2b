/* A model as a Hugging Face folder: config.json and safetensors, with the names of Mixtral. */
#ifndef REGULON_CHECKPOINT_HF_H
#define REGULON_CHECKPOINT_HF_H
#include "model/model.h"

/* Reads the folder's tensors into this rank's weights, each rank its own part: model.safetensors,
 * or the files that model.safetensors.index.json lists. Experts may be named either way
 * (block_sparse_moe.experts.N.w1/w2/w3, or mlp.experts.gate_up_proj/down_proj). die_user (65)
 * naming the tensors that are missing, left over, or have another shape than the model's. With
 * router.bias_rate above 0 also the selection bias, from folder/router_bias.safetensors: 0 where
 * there is none. Collective over MPI_COMM_WORLD. */
void hf_load(struct model *m, const char *folder);

/* The selection bias of such a folder, [L, E], to be freed by the caller; NULL: it has none.
 * die_user (65) when it is of another model. Local. */
float *hf_read_bias(const char *folder, const struct shape *s);

/* Writes folder, the model after `step` (made if absent; the files of hf_files.h and
 * model.safetensors, FP32, one tensor an expert: the names that load everywhere; with
 * router.bias_rate above 0 also router_bias.safetensors, which transformers does not read). The
 * bytes do not depend on the grid. Written as folder.tmp, fsynced, renamed; an older folder is
 * replaced. Collective over world; the tensors stream through rank 0, a few MB at a time. A failed
 * write ends the run with 74, the older folder untouched. */
void hf_save(struct model *m, const char *folder, int64_t step);

/* The step of a folder that hf_save wrote, -1 for another one. One rank. */
int64_t hf_step(const char *folder);
#endif
