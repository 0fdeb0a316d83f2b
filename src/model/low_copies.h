/* Copies of weights in eight bits (low_bytes of backend.h), of the layers that have a recipe. A
 * matrix that comes for a while (stage.h) has those of its room, others their own. m->low_copies
 * has them by the first tensor of the matrix, NULL where there are none. Used by the model's own
 * files.
 */
#ifndef REGULON_MODEL_LOW_COPIES_H
#define REGULON_MODEL_LOW_COPIES_H
#include "model/model.h"

/* The matrix of a layer that begins with tensor `first`: w[n, N, K], of this rank's experts or one.
 */
struct low_matrix {
    int n, N, K;
};
struct low_matrix low_matrix_of(const struct model *m, int first);

void low_copies_new(struct model *m); /* m->low_copies, NULL: none are needed */
void low_copies_free(struct model *m);
void low_copies_forget(struct model *m, int i); /* weights i have changed */
/* Those of matrices that are not staged, if they are out of date: before a forward pass. Collective
 * over world where weights are not kept whole. */
void low_copies_make(struct model *m);
/* Those of weights that have just come into the room of this layer's stage. */
void low_copies_of_stage(struct model *m, int layer);
#endif
