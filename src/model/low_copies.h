/* Copies of weights in eight bits (low_bytes of backend.h), of the layers that have a recipe. A
 * matrix that is kept whole has its own; one that comes for a while (stage.h) has those of its
 * room. Used by the model's own files. */
#ifndef REGULON_MODEL_LOW_COPIES_H
#define REGULON_MODEL_LOW_COPIES_H
#include "model/model.h"

void low_copies_new(struct model *m); /* after stages_new; m->low_copies, NULL: none are needed */
void low_copies_free(struct model *m);
int low_copies_n(const struct model *m); /* of m->low_copies, NULL among them */
void low_copies_forget(struct model *m); /* the weights have changed */
/* Those of weights that are kept whole, if they are out of date: before a forward pass. */
void low_copies_make(struct model *m);
/* Those of weights that have just come into the room of this layer's stage. */
void low_copies_of_stage(struct model *m, int layer);
#endif
