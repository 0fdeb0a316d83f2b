/* What a layer keeps from its forward pass for its backward pass, and how the rest is made again
 * (memory.recompute; Chen et al. 2016); used by model.c, passes.c and its test. */
#ifndef REGULON_MODEL_RECOMPUTE_H
#define REGULON_MODEL_RECOMPUTE_H
#include "model/model.h"

/* m->layers, with what each keeps of its own and what layers share; rows: moe_rows. Without
 * gradients nothing is kept. */
void recompute_new_layers(struct model *m, size_t rows, int with_gradients);
void recompute_free_layers(struct model *m);

/* Before the backward pass of a layer, after that of the layer above: what it has not kept, bit for
 * bit as the forward pass made it. Nobody is routed again; m->delta is overwritten. Nothing is
 * exchanged, and the call is local, unless be->rows_again: then the rows in the stash are made
 * again, too. Collective over grid->ep with it. */
void recompute_layer(struct model *m, int layer);
#endif
