/* A model as a Hugging Face folder: config.json and safetensors, with the names of Mixtral. */
#ifndef REGULON_CHECKPOINT_HF_H
#define REGULON_CHECKPOINT_HF_H
#include "model/model.h"

/* Writes folder, the model after `step` (made if absent; the files of hf_files.h and
 * model.safetensors, FP32, one tensor an expert: the names that load everywhere; of a
 * model with a selection bias also router_bias.safetensors, which transformers does not read). The
 * bytes do not depend on the grid. Written as folder.tmp, fsynced, renamed; an older folder is
 * replaced. Collective over world; the tensors stream through rank 0, a few MB at a time. A failed
 * write ends the run with 74, the older folder untouched. */
void hf_save(struct model *m, const char *folder, int64_t step);

/* The step of a folder that hf_save wrote, -1 for another one. One rank. */
int64_t hf_step(const char *folder);
#endif
