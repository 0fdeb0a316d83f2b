/* The virtual token stream of a corpus: its windows in file order, one after the other, addressable
 * at any place without a table of windows. A corpus falls into segments (records, or the stretches
 * of a record between held-out blocks), each strand of a segment into windows of max_seq_length
 * tokens that overlap by stride. */
#ifndef REGULON_DATA_STREAM_H
#define REGULON_DATA_STREAM_H
#include "config/config.h"
#include "data/corpus.h"
#include <stdint.h>

enum stream_part { STREAM_TRAIN, STREAM_HELD_OUT, STREAM_ALL };

struct stream;

/* The training, held-out or whole part of a corpus under c->dataset. The corpus is borrowed. The
 * held-out part never has a reverse strand. Segments without tokens, or an empty part, are
 * ordinary. */
struct stream *stream_open(const struct corpus *corpus, const struct config *c,
                           enum stream_part part);
void stream_close(struct stream *s);
int64_t stream_tokens(const struct stream *s);  /* length of the virtual stream */
int64_t stream_targets(const struct stream *s); /* targets in one pass over it */

/* One document cut out of the stream: a window or what a chunk's edges leave of one. */
struct stream_document {
    int64_t n;        /* tokens written */
    int first_target; /* index of the first token of the document that may be a target (>= 1) */
};

/* Fills tokens[n] from stream position `at` up to the end of the window there, at most n tokens;
 * labels[n] gets the token as target or -100 (context, alphabet, tags, first token of the
 * document), weights[n] its weight. Returns the number of tokens written; 0 only at the end of the
 * stream. */
int64_t stream_read(const struct stream *s, int64_t at, int64_t n, int32_t *tokens, int32_t *labels,
                    float *weights);

/* Calls visit once per segment with its bases in order (one strand each), for counting k-mers:
 * text[n] of tokens, target[n] 1 where the token counts as a target somewhere in this part of the
 * corpus. */
void stream_each_segment(const struct stream *s,
                         void (*visit)(const int32_t *tokens, const unsigned char *target,
                                       int64_t n, void *context),
                         void *context);
#endif
