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

/* What c->dataset asks for and this corpus cannot give, or windows that do not advance: die_user
 * (78). For rank 0, before user_agree(); stream_open looks again. */
void stream_check(const struct corpus *corpus, const struct config *c);

/* The training, held-out or whole part of a corpus under c->dataset. The corpus is borrowed.
 * Segments without tokens, or an empty part, are ordinary. With holdout_by record it reads the
 * names of all records (HDF5).
 *
 * A training segment is held twice with reverse_complement, forward and then as its reverse
 * complement; the other parts never. bos_eos record: BOS and EOS at the ends of a strand that are
 * ends of the record; window: around each window; none: nowhere. BOS and EOS are never targets.
 * Ready tokens of 2 or 4 bytes know no BOS, so the corpus's EOS stands for it.
 *
 * Each base that may be a target (labels.h) is one exactly once in a pass over the windows, but for
 * the first token of a segment that neither BOS nor, held out, stride > 0 bases of the record
 * precede, and, with stride 0 and not bos_eos window, the first token of each continuing window:
 * nothing is there to predict them from. */
struct stream *stream_open(const struct corpus *corpus, const struct config *c,
                           enum stream_part part);
void stream_close(struct stream *s);
int64_t stream_tokens(const struct stream *s); /* length of the virtual stream */

/* Targets in one pass over its windows, each read whole (a chunk's edge inside a window costs one
 * more). Scans the corpus: milliseconds per million tokens. */
int64_t stream_targets(const struct stream *s);

/* Fills tokens[n] from stream position `at` up to the end of the window there, at most n tokens;
 * labels[n] gets the token as target or -100 (context, alphabet, tags, first token of what is
 * read), weights[n] its weight. Returns the number of tokens written; 0 only at the end of the
 * stream or for n = 0. Any thread. */
int64_t stream_read(const struct stream *s, int64_t at, int64_t n, int32_t *tokens, int32_t *labels,
                    float *weights);

/* What the stream is cut from, in its order: the records, or the stretches of records, of its part.
 */
struct stream_segment {
    int64_t record, start, n; /* n > 0 bases of the record from `start` on */
};
int64_t stream_segments(const struct stream *s);
struct stream_segment stream_segment(const struct stream *s, int64_t i);

/* Of the n > 0 tokens that stream_read gives at `at`, those that are no context, BOS or EOS: tokens
 * skip..skip+n-1 are bases first..first+n-1 of the segment. A pass over the windows gives each base
 * just once. Not of a training part with reverse_complement. */
struct stream_fresh {
    int64_t segment, first, skip, n;
};
struct stream_fresh stream_fresh(const struct stream *s, int64_t at, int64_t n);

/* Whether a record of this name is held out under holdout_by record: the same for the same name,
 * always. */
int stream_holds_out(const char *name, double share);
#endif
