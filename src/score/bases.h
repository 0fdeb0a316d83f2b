/* What a model does with each base of the held-out data, back on rank 0 in the order of the
 * micro-batches, while it is evaluated. */
#ifndef REGULON_SCORE_BASES_H
#define REGULON_SCORE_BASES_H
#include "train/evaluate.h"
#include "train/trained.h"

/* Bases first..first+n-1 of a segment of a stream, neighbours in one window. */
struct stretch {
    int64_t stream, segment, first, n;
    int64_t n_targets; /* of them, */
    double loss;       /* with the sum of their -log p, nats */
};

/* What to do with a stretch, on rank 0. experts[n, L, A], weights[n, L, A]: those that a base was
 * sent to, the largest weight first, of equal ones the lowest number; NULL unless routing is
 * wanted. */
typedef void bases_take(void *context, const struct stretch *s, const uint16_t *experts,
                        const float *weights);

struct bases {
    struct trained *t;             /* borrowed, as are the streams */
    struct stream *const *streams; /* the held-out ones */
    bases_take *take;
    void *context;
    struct evaluate_each each; /* for evaluate_streams */
    double *host;              /* [capacity] of the micro-batch */
    struct stretch *stretches; /* [n], room for capacity */
    int n, n_bases;
    uint16_t *experts; /* [n_bases, L, A], NULL: no routing; room for capacity */
    float *weights;
    int32_t *ids; /* [capacity, A] of a layer */
    float *p;
};

/* Why micro-batches of `capacity` tokens cannot be told base by base: a new string for the user, or
 * NULL. */
char *bases_refusal(const struct config *c, int capacity);

/* Ready for evaluate_streams(..., &b->each), after which bases_close frees it. Local. */
void bases_open(struct bases *b, struct trained *t, struct stream *const *streams, int routing,
                bases_take *take, void *context);
void bases_close(struct bases *b);
#endif
