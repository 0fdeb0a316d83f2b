/* Windows of tokens through a trained model, on all ranks, and what it says of each token back on
 * rank 0 in their order. They are packed into micro-batches in order, and micro-batch i goes to
 * rank i mod ranks: what shares a micro-batch does not depend on the ranks, nor then, with as many
 * threads a rank, does the result. */
#ifndef REGULON_SCORE_WINDOWS_H
#define REGULON_SCORE_WINDOWS_H
#include "train/trained.h"

/* One window; the caller's source knows what it is by its fields but n. */
struct window {
    int n;          /* tokens, at most the micro-batch's capacity */
    int64_t record; /* of the source's sequences, */
    int strand;     /* of which strand, */
    int64_t first;  /* from which token of it on */
};

/* Where windows come from and where results go. `context` is the caller's. */
struct windows_source {
    /* The next window, in order, the same on every rank; 0: there are no more. */
    int (*next)(void *context, struct window *w);
    /* Its tokens[n] and labels[n] (as batch_append takes them); room[n] is to work in. Any rank. */
    void (*fill)(void *context, const struct window *w, int32_t *tokens, int32_t *labels,
                 float *room);
    /* values[n, width]: what the model says of its tokens. Rank 0, in order. */
    void (*take)(void *context, const struct window *w, const float *values);
    void *context;
};

/* Tokens of a micro-batch: as in training, but dataset.max_seq_length, a window, at least. */
int windows_capacity(const struct config *c);

/* width 1: the log-likelihood (nats) of the label of each token, NaN where it has none; the first
 * token never has. Collective over world. */
void windows_score(struct trained *t, const struct windows_source *s);

/* width D: the stream after model->depth layers, after the last norm where those are all. */
void windows_embed(struct trained *t, const struct windows_source *s);
#endif
