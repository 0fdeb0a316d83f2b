/* Letters are drawn in the order of their tokens, not of their probabilities: nearly equal ones may
 * change places by the rounding of the model's sums, and with it would what is drawn. */
#include "config.h"
#include "generate/sample.h"
#include <math.h>
#include <stdlib.h>

static int likelier(const void *av, const void *bv) {
    const struct candidate *a = av, *b = bv;
    if (a->p != b->p) return a->p < b->p ? 1 : -1;
    return a->token < b->token ? -1 : 1;
}

static int lower(const void *av, const void *bv) {
    const struct candidate *a = av, *b = bv;
    return a->token < b->token ? -1 : 1;
}

/* How many of the candidates, likeliest first, top_k and then top_p leave. */
static int cut(const struct sampling *s, const struct candidate *c, int n) {
    if (s->top_k && s->top_k < n) n = (int)s->top_k;
    double all = 0, sum = 0;
    for (int i = 0; i < n; i++) all += c[i].p;
    for (int i = 0; i < n; i++) {
        sum += c[i].p;
        if (sum >= s->top_p * all) return i + 1;
    }
    return n;
}

int32_t sample_token(const struct sampling *s, const float *logits, const int32_t *tokens, int n,
                     double u, struct candidate *room) {
    int best = 0;
    for (int i = 0; i < n; i++) {
        if (!isfinite(logits[tokens[i]])) return -1;
        if (logits[tokens[i]] > logits[tokens[best]]) best = i;
    }
    if (s->greedy) return tokens[best];
    for (int i = 0; i < n; i++) {
        double x = (double)logits[tokens[i]] - (double)logits[tokens[best]];
        room[i] = (struct candidate){.token = tokens[i], .p = exp(x / s->temperature)};
    }
    int left = n;
    if (s->top_k || s->top_p < 1) {
        qsort(room, (size_t)n, sizeof *room, likelier);
        left = cut(s, room, n);
        qsort(room, (size_t)left, sizeof *room, lower);
    }
    double all = 0, sum = 0;
    for (int i = 0; i < left; i++) all += room[i].p;
    for (int i = 0; i < left; i++) {
        sum += room[i].p;
        if (u * all < sum) return room[i].token;
    }
    return room[left - 1].token;
}
