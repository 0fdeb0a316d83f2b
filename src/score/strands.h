/* Records cut into windows, each strand on its own: [BOS] and then the bases, as windows of
 * training are, but for EOS, which is no base and stands before none. Window k begins at token k *
 * stride of a strand; of all but the first only the last `stride` tokens are fresh, the others are
 * context. */
#ifndef REGULON_SCORE_STRANDS_H
#define REGULON_SCORE_STRANDS_H
#include "data/corpus.h"
#include "data/labels.h"
#include "score/windows.h"

enum strand_kind { STRAND_FORWARD, STRAND_REVERSE, STRAND_MEAN };

struct strands {
    const struct corpus *corpus; /* borrowed */
    struct labels *labels;
    const unsigned char *complement;
    int32_t bos;
    int first, last;         /* strands: 0 forward, 1 reverse */
    int head, wrapped;       /* BOS before a record; before every window */
    int64_t content, stride; /* tokens of a strand in a window; from one to the next */
    struct window at;        /* the next one, n aside */
};

/* Why these sizes or this strand cannot be: a new string for the user, or NULL. window 0:
 * dataset.max_seq_length, which becomes the window; stride 0: half of what a window holds. On every
 * rank alike. */
char *strands_open(struct strands *s, const struct corpus *corpus, struct config *c, int64_t window,
                   int64_t stride, enum strand_kind kind);
void strands_close(struct strands *s);

/* For a windows_source over all records: context is a struct strands. Records without tokens have
 * no windows. */
int strands_next(void *context, struct window *w);
void strands_fill(void *context, const struct window *w, int32_t *tokens, int32_t *labels,
                  float *room);

/* The first fresh token of a window; whether the record (its last strand) ends with it. */
int strands_fresh(const struct strands *s, const struct window *w);
int strands_ends(const struct strands *s, const struct window *w);

/* Where in the record token i of a window lies; -1 for BOS. */
int64_t strands_place(const struct strands *s, const struct window *w, int i);

/* n tokens of a record from place `from` on. */
void strands_read(const struct strands *s, int64_t record, int64_t from, int64_t n,
                  int32_t *tokens);

/* tokens[n] as the other strand reads them. */
void strands_turn(const struct strands *s, int32_t *tokens, int64_t n);
#endif
