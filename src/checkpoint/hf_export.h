/* A Hugging Face folder from weights on disk. */
#ifndef REGULON_CHECKPOINT_HF_EXPORT_H
#define REGULON_CHECKPOINT_HF_EXPORT_H
#include "checkpoint/weights.h"

struct hf_export {
    int half;          /* BF16 (rounded to nearest, ties to even) instead of FP32 */
    double file_bytes; /* no file of tensors larger than this, unless one tensor is: then several
                          and an index; 0: one file */
};

/* Writes the folder: the files of hf_files.h and the tensors, one an expert, in hf_list_new's
 * order. Every rank writes its part of the stretches, through buffers of 16 MB, or of one row.
 * Written as folder.tmp, fsynced, renamed; the bytes do not depend on the number of ranks. NULL, or
 * what failed, the same on all ranks, with nothing left behind; the caller frees it. Collective
 * over world. */
char *hf_export(struct weights *w, const struct grid *g, const struct config *c, const char *folder,
                struct hf_export how);
#endif
