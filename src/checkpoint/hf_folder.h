/* The tensors of a Hugging Face folder, in model.safetensors or in several files that
 * model.safetensors.index.json lists. */
#ifndef REGULON_CHECKPOINT_HF_FOLDER_H
#define REGULON_CHECKPOINT_HF_FOLDER_H
#include "checkpoint/hf_pieces.h"
#include "checkpoint/safetensors.h"
#include "model/params.h"

struct hf_tensor {
    const struct safetensors *file;
    const struct safetensor *tensor;
};

struct hf_folder {
    char *path;
    struct safetensors **files; /* [n_files] */
    int n_files;
    struct hf_tensor *list; /* [n] by name */
    int n;
    enum hf_naming naming;
};

/* 1 if the folder holds such files; by their names only. */
int hf_folder_exists(const char *path);

/* Opens the folder and reads all headers, not the data. die_user (65) on: both a single file and an
 * index, an index that is not to the letter ("weight_map" of names to files in this folder, each
 * tensor in just one file and listed with it), what safetensors_open refuses, both namings of
 * experts. hf_folder_close closes it. Local. */
struct hf_folder *hf_folder_open(const char *path);
void hf_folder_close(struct hf_folder *f);

/* die_user (65) unless the folder has just the tensors of the whole model `p`, as weights of the
 * same shapes, or, where `dense`, those of a model with one feed-forward block a layer instead of
 * experts, and not otherwise: those missing, left over, of another shape or type are named, all of
 * them or the first few. Of a tied model an lm_head.weight may be there: it must be the embedding,
 * bit for bit. Local. */
void hf_folder_check(const struct hf_folder *f, const struct params *p, int dense);

/* Elements [first, first + n) of parameter t's part of a rank, or of the whole where t is of the
 * whole model's table, as FP32; a router's are left as they are
 * where the folder is dense. Dies (74) on a read error. Local. */
void hf_folder_read(const struct hf_folder *f, const struct param *t, int64_t first, int64_t n,
                    float *out);
#endif
