/* Whole weights and whole gradients for a while (parallelism.shard full): a pass goes through
 * stages, the embedding, the layers, the head, and two rooms for the weights and two for the
 * gradients of a stage serve them in turn. While one stage computes, the next one's weights are
 * gathered into the other room, and the gradients of the one before leave theirs: the sum over the
 * ranks is added to the shares. Without stages (m->stages NULL) everything here does nothing; a
 * model that only evaluates has none. Used by the model's own files and tests.
 *
 * Stage k uses rooms k mod 2. Collective, over world, all in the same order. */
#ifndef REGULON_MODEL_STAGE_H
#define REGULON_MODEL_STAGE_H
#include "model/model.h"

enum { ROOMS = 2, STAGE_TENSORS = 9 };

struct stages {
    size_t *place; /* [params->n] of a staged tensor in the room of its stage, in elements */
    size_t room;   /* elements of a room */
    real_t *weights[ROOMS];
    float *grads[ROOMS];
    int held[ROOMS];  /* the stage whose weights the room has or is about to get; NONE */
    int fresh[ROOMS]; /* 1: no stage has begun with them yet */
    int now;          /* the stage that model_weight and model_grad speak of */
};

enum { STAGE_NONE = -1, STAGE_EMBED = 0 };
static inline int stage_layer(int layer) {
    return layer + 1;
}
static inline int stage_head(const struct model *m) {
    return m->s.L + 1;
}

/* 1: some tensors are staged. stages_new: m->stages then. */
int stages_wanted(const struct model *m);
void stages_new(struct model *m);
void stages_free(struct model *m);

/* 1: of the gradient of tensor i, an expert's, products leave this rank's rows in its share, and
 * the room has the others' alone. Every rank decides for itself. */
int stage_direct(const struct model *m, int i);

/* The weights of stage k are whole for what follows, until the next of these calls. forward and
 * backward: those of the stage after it, before it, begin to come; backward: its gradients may be
 * written. */
void stage_weights(struct model *m, int k);
void stage_forward(struct model *m, int k);
void stage_backward(struct model *m, int k);

/* The gradients of stage k are complete: they begin to leave. */
void stage_reduce(struct model *m, int k);

/* What has begun is done, for what follows: the shares of gradients are sums over the grid. */
void stages_finish(struct model *m);

/* The weights have changed: what rooms hold is out of date. */
void stages_forget(struct model *m);

/* The tensors of stage k; returns their number. One of two stages is listed in both. */
int stage_tensors(const struct model *m, int k, int list[STAGE_TENSORS]);

/* The first stage that has tensor i, which is the last one of a backward pass. */
int stage_of(const struct model *m, int i);
#endif
