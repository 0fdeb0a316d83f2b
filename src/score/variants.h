/* Variants in their context: what the model says of the sequence with ALT, against that with REF.
 */
#ifndef REGULON_SCORE_VARIANTS_H
#define REGULON_SCORE_VARIANTS_H
#include "score/request.h"

/* Why variants cannot be scored on these sequences: a new string for the user, or NULL. */
char *variants_refusal(const struct strands *s, const struct config *c);

/* Scores each ALT of o->variants on the records of s->corpus and writes a line for it. A window
 * holds the longer allele and what lies on both sides of it, as evenly as the record allows; a
 * log-likelihood is the sum over the allele and what follows it in the window, on the strand.
 * Collective. */
void variants_score(struct trained *t, struct strands *s, const struct request *o);
#endif
