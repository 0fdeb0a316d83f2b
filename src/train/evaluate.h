/* The loss on held-out data. */
#ifndef REGULON_TRAIN_EVALUATE_H
#define REGULON_TRAIN_EVALUATE_H
#include "data/stream.h"
#include "model/model.h"

struct evaluation {
    double loss;          /* mean -log p over the targets, nats; NaN without targets */
    double bits_per_base; /* loss / ln 2 */
    double targets;
    int stopped; /* it was given up: the other fields mean nothing */
};

/* Asked on every rank before each round of micro-batches whether the evaluation is to be given up;
 * one rank's yes is enough. */
typedef int evaluate_stop(const void *context);

/* What wants to know more than the mean. */
struct evaluate_each {
    double
        *losses; /* [capacity], backend memory: gets -log p of each target, model_loss's `each` */
    /* Called on every rank after each round: micro-batch first + rank of stream i went through the
     * model, or none where that is n or more. */
    void (*take)(void *context, int i, int64_t first, int64_t n, const struct batch *b);
    void *context;
};

/* n_batches micro-batches (0: all), shared out evenly among the streams, each stream from its first
 * on in fixed order, micro-batch i of a stream on rank i mod ranks; each target counts once, with
 * weight 1. `b` is scratch of the model's capacity. `stop` and `each` may be NULL. Collective over
 * world. */
struct evaluation evaluate_streams(struct model *m, struct stream *const *streams, int n_streams,
                                   int64_t n_batches, struct batch *b, evaluate_stop *stop,
                                   const void *context, const struct evaluate_each *each);
#endif
