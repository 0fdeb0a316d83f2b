/* Markov chains over k-mers: what counting alone predicts, the baseline beside the model's loss. */
#ifndef REGULON_DATA_MARKOV_H
#define REGULON_DATA_MARKOV_H
#include "config/config.h"
#include "data/stream.h"

enum { MARKOV_MAX_ORDER = 8, MARKOV_ORDERS = MARKOV_MAX_ORDER + 1 };

struct markov_result {
    double bits_per_base[MARKOV_ORDERS]; /* on the held-out targets; NaN if there are none */
    double alpha[MARKOV_ORDERS];         /* the add-alpha chosen on training data */
    int best;                            /* order with the fewest bits */
    int64_t n_targets;
};

/* Fits orders 0..8 on the training stream (add-alpha, alpha chosen per order on training data by
 * leaving one tenth of it out in turn) and scores them on the same targets as the model. For the
 * dna and rna alphabets. */
void markov_score(const struct stream *train, const struct stream *held_out, const struct config *c,
                  struct markov_result *r);
#endif
