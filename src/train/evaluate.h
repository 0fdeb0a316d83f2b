/* The loss on held-out data. */
#ifndef REGULON_TRAIN_EVALUATE_H
#define REGULON_TRAIN_EVALUATE_H
#include "data/stream.h"
#include "model/model.h"

struct evaluation {
    double loss;          /* mean -log p over the targets, nats; NaN without targets */
    double bits_per_base; /* loss / ln 2 */
    double targets;
};

/* Chunks 0..n_batches-1 (0: all) of the stream in fixed order, micro-batch i on rank i mod ranks;
 * each target counts once, with weight 1. `b` is scratch of the model's capacity. Collective over
 * world. */
struct evaluation evaluate_stream(struct model *m, const struct stream *s, int64_t n_batches,
                                  struct batch *b);

/* `regulon eval MODEL [key=value ...]`. Returns the exit code. */
int evaluate_main(int argc, char **argv);
#endif
