/* One token from the model's logits. */
#ifndef REGULON_GENERATE_SAMPLE_H
#define REGULON_GENERATE_SAMPLE_H
#include <stdint.h>

struct sampling {
    int greedy;         /* the likeliest; of equal ones the lowest token */
    double temperature; /* logits are divided by it; > 0 */
    int64_t top_k;      /* then only the likeliest k may be chosen; 0: all */
    double top_p;       /* then the fewest of them, likeliest first, whose probabilities reach it */
};

/* A token that may be chosen. Room for n of them is the caller's. */
struct candidate {
    int32_t token;
    double p;
};

/* One of tokens[n] (ascending, n > 0) by logits[V], u in (0, 1); -1 if one of their logits is not
 * finite. Probabilities are those among tokens[n]. */
int32_t sample_token(const struct sampling *s, const float *logits, const int32_t *tokens, int n,
                     double u, struct candidate *room);
#endif
