/* The weights of a whole model, read a stretch at a time from where they lie: the FP32 masters of a
 * checkpoint, or the tensors of a Hugging Face folder. No rank ever holds more than it asks for. */
#ifndef REGULON_CHECKPOINT_WEIGHTS_H
#define REGULON_CHECKPOINT_WEIGHTS_H
#include "config/config.h"
#include "grid/grid.h"
#include "model/model.h"

struct weights;

/* A mixture of experts from a dense model (Komatsuzaki et al. 2023): every expert is a copy of the
 * layer's feed-forward block, and normal(0, noise) is added to its weights; the router begins as
 * that of a new run, normal(0, initializer_range). With noise 0 the mixture computes what the dense
 * model does. A pure function of the config's seed and the weights. */
struct upcycling {
    double noise;
};

/* Opens what checkpoint_find_weights gave, which every rank names. die_user (65) when a file of a
 * checkpoint is damaged (the ranks share the work of hashing) or the tensors are not those of the
 * model in c. Collective over world, which is MPI_COMM_WORLD; weights_close is local.
 * `u`: NULL, or what to make of a Hugging Face folder of a dense model; borrowed until
 * weights_close, as is c. */
struct weights *weights_open(const struct grid *g, const char *folder, const struct config *c,
                             const struct upcycling *u);
void weights_close(struct weights *w);

const struct params *
weights_params(const struct weights *w);            /* the whole model's table; borrowed */
const float *weights_bias(const struct weights *w); /* [L, E] selection bias, or NULL; borrowed */
int64_t weights_step(const struct weights *w);      /* the step they are of, -1: not known */

/* Elements [first, first + n) of parameter i of the whole model; of a checkpoint whole rows. NULL,
 * or what is wrong, freed by the caller. Local. */
char *weights_read(struct weights *w, int i, int64_t first, int64_t n, float *out);

/* Weights and selection bias of the folder, which rank 0 names, into the model, each rank its own
 * part, through a buffer of 16 MB, or of one row. die_user (65) as weights_open. Collective over
 * world, which is MPI_COMM_WORLD. */
void weights_load(struct model *m, const char *folder);
#endif
