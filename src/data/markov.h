/* Markov chains over k-mers: what counting alone predicts, the baseline beside the model's loss. */
#ifndef REGULON_DATA_MARKOV_H
#define REGULON_DATA_MARKOV_H
#include "config/config.h"
#include "data/stream.h"

enum { MARKOV_MAX_ORDER = 8, MARKOV_ORDERS = MARKOV_MAX_ORDER + 1 };

struct markov_result {
    double bits_per_base[MARKOV_ORDERS]; /* on the held-out targets; NaN if there are none */
    double alpha[MARKOV_ORDERS];         /* the add-alpha chosen on training data */
    int best;                            /* order with the fewest bits; 0 if there are no targets */
    int64_t n_targets;                   /* scored */
};

/* Bits of targets, summed. */
struct markov_sum {
    double bits[MARKOV_ORDERS];
    int64_t n_targets;
};

struct markov; /* the chains of orders 0..8 */

/* Counts the micro-batches of the training stream. p(x | context) = (n + alpha) / (N + 4 alpha),
 * alpha a power of 2 per order: the one under which each training target is best predicted from all
 * others (leave-one-out likelihood). Case does not matter; targets that are not one of the
 * alphabet's four letters do not count. Streams of more than 2^27 tokens are sampled evenly. For
 * dna and rna; other alphabets have no targets. One rank, no MPI; about 0.2 s for a bacterial
 * genome. The caller frees it. */
struct markov *markov_fit(const struct stream *train, const struct config *c);
void markov_free(struct markov *m); /* NULL is fine */

/* Scores the first n_batches (0: all) micro-batches of validation: the same targets as the model,
 * each predicted from the letters before it in its document, at most `order`, fewer where a
 * document starts or another token intervenes. by_segment[stream_segments(held_out)], or NULL: what
 * belongs to each is added. One rank. */
void markov_score(struct markov *m, const struct stream *held_out, int64_t n_batches,
                  struct markov_result *result, struct markov_sum *by_segment);
#endif
