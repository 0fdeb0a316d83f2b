/* Gradients on their way to the ranks that update them (parallelism.shard optimizer): behind the
 * backward pass of a step's last micro-batch, or, stage by stage, beside it (engine.reduce); used
 * by the model's own files and the optimizer. All of it is collective over world. */
#ifndef REGULON_MODEL_REDUCE_H
#define REGULON_MODEL_REDUCE_H
#include "model/model.h"

/* Tickets of what goes on beside. */
enum { REDUCE_TICKET, GATHER_TICKET };

/* 1: gradients and updated weights travel beside other work, as engine.reduce says; auto: where the
 * backend has a place beside, and gradients are worth the pass that cannot be recorded. Before
 * reserve. */
int reduce_beside_wanted(const struct model *m);

/* Gradients of stage k (stage.h) are complete; in a pass with m->reduces they begin to travel. */
void reduce_stage(struct model *m, int k);

/* This rank's shares of all gradients are sums over the grid, for what follows. */
void reduce_finish(struct model *m);
#endif
