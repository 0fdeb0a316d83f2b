/* Which tokens of a corpus are targets, what label and what weight they have: the alphabet's
 * letters, upper case or not, soft masks, and the phylogenetic tags that are never targets. */
#ifndef REGULON_DATA_LABELS_H
#define REGULON_DATA_LABELS_H
#include "config/config.h"
#include "data/corpus.h"
#include <stdint.h>

struct labels;

/* The rules of c->dataset for `corpus`, which is borrowed. Text (one byte a token): the alphabet's
 * letters in either case (mask_degenerate_bases), or every letter; for the bytes alphabet all
 * of 4..255 but the corpus's EOS. Ready tokens of 2 or 4 bytes: all but EOS. With mask_tags, the
 * text from a '|' to the next one in the record, both included, is no target; a last '|' without a
 * partner only masks itself (this scans the corpus). */
struct labels *labels_new(const struct corpus *corpus, const struct config *c);
void labels_free(struct labels *l);

/* labels[n] and weights[n] of tokens[n], which lie at `at` in the corpus's /tokens (the place
 * matters for tags only, so that text of a reverse strand, which has no tags, may give any). Not a
 * target: -100, weight 0. */
void labels_fill(const struct labels *l, int64_t at, const int32_t *tokens, int64_t n,
                 int32_t *labels, float *weights);
#endif
