/* Many sequences from one model, a token of each at a time, spread over the ranks. */
#ifndef REGULON_GENERATE_GENERATOR_H
#define REGULON_GENERATE_GENERATOR_H
#include "generate/sample.h"
#include "model/model.h"

/* What stands before the letters: tokens[n], n > 0, BOS among them. */
struct prompt {
    const int32_t *tokens;
    int n;
};

/* What to make: from each prompt `count` sequences of `length` letters. Sequence i is number i mod
 * count of prompt i div count; rank r of P makes sequences i with i mod P = r. Letter k of a
 * sequence is a pure function of the model, the settings, its prompt and (seed, index of the
 * prompt, number, k), but for the rounding of sums, which differs with what else is in the batch.
 *
 * A document has at most context - 1 tokens, as many as training predicts a token from. A sequence
 * that comes to `context` goes on in a new document that begins with the last context / 2 of them,
 * behind `bos` where that is not -1. */
struct task {
    const struct prompt *prompts; /* each of fewer than `context` tokens */
    int n_prompts, count;
    int64_t length;
    int context; /* at most the model's capacity */
    int32_t bos;
    const int32_t *letters; /* [n_letters] what may be chosen, ascending, < 256 */
    int n_letters;
    uint64_t seed;
    struct sampling sampling;
};

/* How many sequences a rank makes. */
int64_t generator_share(const struct task *t, const struct grid *g, int rank);

/* Makes this rank's sequences: letters[generator_share, length]. Returns 0 if the model's logits
 * were not finite somewhere, on every rank alike, else 1. Keys and values are kept where the
 * backend can (attention_kept), else each token takes a pass over its whole document. Collective
 * over world. */
int generator_run(struct model *m, const struct task *t, unsigned char *letters);
#endif
