/* A strand of a segment is a sequence: [BOS] context bases [EOS]. Window w of it starts at w *
 * (content - stride) and is full but for the last, so that a place in the stream is found with one
 * binary search over the segments and one division. */
#include "config.h"
#include "data/stream.h"
#include "base/die.h"
#include "base/memory.h"
#include "data/labels.h"
#include "data/tokens.h"
#include "grid/watchdog.h"
#include <assert.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

/* Bases start..start+n-1 of a record, n > 0, whose first token is at place `first` of the stream.
 */
struct segment {
    int64_t first, record, start, n;
};

struct stream {
    const struct corpus *corpus;
    struct labels *labels;
    const unsigned char *complement; /* NULL: no reverse strand */
    enum stream_part part;
    enum bos_kind bos_eos;
    int32_t bos, eos;
    int64_t window, stride, content; /* content: what a window holds of its sequence */
    struct segment *segments;
    int64_t n_segments, room, n_tokens;
};

/* The sequence that windows are cut from: head BOS, left bases of context, the segment, tail EOS.
 */
struct sequence {
    int64_t left, n; /* n: tokens of all */
    int head, tail;
};

/* One window: n tokens, of them head BOS (0 or 1) in front and tail EOS behind n_bases bases of a
 * record that start at `from`, to be read backwards and complemented if reverse. No target before
 * first_target. */
struct window {
    int64_t n, segment, record, from, n_bases, first_target;
    int head, tail, reverse;
};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t content_of(const struct config *c) {
    return c->dataset.max_seq_length - (c->dataset.bos_eos == BOS_WINDOW ? 2 : 0);
}

/* One block in so many is held out. */
static int64_t holdout_period(const struct config *c) {
    return llround(fmin(1 / c->dataset.holdout_share, 1e15));
}

void stream_check(const struct corpus *corpus, const struct config *c) {
    if (c->dataset.stride >= content_of(c))
        die_user(EXIT_CONFIG,
                 "dataset.stride: %lld leaves nothing new in a window of %lld tokens%s",
                 (long long)c->dataset.stride, (long long)c->dataset.max_seq_length,
                 c->dataset.bos_eos == BOS_WINDOW ? ", two of them BOS and EOS" : "");
    if (c->dataset.reverse_complement &&
        tokens_complement((enum alphabet_kind)c->dataset.alphabet) == NULL)
        die_user(
            EXIT_CONFIG,
            "dataset.reverse_complement: only the alphabets dna and rna have a reverse strand");
    if (c->dataset.reverse_complement && c->dataset.mask_tags)
        die_user(
            EXIT_CONFIG,
            "dataset.reverse_complement: text with tags (dataset.mask_tags) has no reverse strand");
    if (c->dataset.holdout_by == HOLDOUT_BLOCK && c->dataset.holdout_share > 0 &&
        holdout_period(c) < 2)
        die_user(EXIT_CONFIG, "dataset.holdout_share: %g by block leaves no training data",
                 c->dataset.holdout_share);
    if (!corpus->ready) return;
    const char *key = c->dataset.reverse_complement             ? "reverse_complement"
                      : c->dataset.mask_tags                    ? "mask_tags"
                      : c->dataset.uppercase_labels == TRI_TRUE ? "uppercase_labels"
                      : c->dataset.lowercase_weight != 1        ? "lowercase_weight"
                                                                : NULL;
    if (key)
        die_user(EXIT_CONFIG, "dataset.%s: needs text, and %s holds ready tokens", key,
                 corpus->path);
}

static struct sequence sequence_of(const struct stream *s, const struct segment *g, int reverse) {
    struct sequence q = {.left = s->part == STREAM_HELD_OUT ? least(s->stride, g->start) : 0};
    if (s->bos_eos == BOS_RECORD) {
        int at_start = g->start - q.left == 0,
            at_end = g->start + g->n == s->corpus->length[g->record];
        q.head = reverse ? at_end : at_start;
        q.tail = reverse ? at_start : at_end;
    }
    q.n = q.head + q.left + g->n + q.tail;
    return q;
}

/* Tokens of all windows of a strand; both strands have as many. */
static int64_t strand_tokens(const struct stream *s, const struct segment *g) {
    int64_t n = sequence_of(s, g, 0).n, step = s->content - s->stride;
    int64_t windows = n <= s->content ? 1 : 1 + (n - s->content + step - 1) / step;
    return n + (windows - 1) * s->stride + windows * (s->window - s->content);
}

static void add_segment(struct stream *s, int64_t record, int64_t start, int64_t end) {
    if (start == end) return;
    if (s->n_segments == s->room) {
        s->room = s->room ? 2 * s->room : 64;
        s->segments = memory_resize(s->segments, (size_t)s->room * sizeof *s->segments);
    }
    struct segment *g = &s->segments[s->n_segments++];
    *g = (struct segment){.first = s->n_tokens, .record = record, .start = start, .n = end - start};
    s->n_tokens += strand_tokens(s, g) * (s->complement ? 2 : 1);
}

/* The runs of training blocks, or of held-out ones, in a record: block b is held out if b mod
 * period is last. */
static void add_blocks(struct stream *s, int64_t record, int64_t block, int64_t period) {
    int64_t length = s->corpus->length[record];
    for (int64_t start = 0, end; start < length; start = end) {
        int64_t b = start / block, place = b % period;
        int held_out = place == period - 1;
        int64_t next =
            held_out ? b + 1 : b - place + period - 1; /* the block where this run ends */
        end = next > length / block ? length : next * block;
        if (held_out == (s->part == STREAM_HELD_OUT)) add_segment(s, record, start, end);
    }
}

int stream_holds_out(const char *name, double share) {
    enum { SEED = 1 }; /* part of the meaning of every deck: never to change */
    return (double)(XXH3_64bits_withSeed(name, strlen(name), SEED) >> 11) * 0x1p-53 < share;
}

static void add_record(struct stream *s, int64_t record, double share) {
    char *name = corpus_record_name(s->corpus, record);
    if (stream_holds_out(name, share) == (s->part == STREAM_HELD_OUT))
        add_segment(s, record, 0, s->corpus->length[record]);
    memory_free(name);
}

struct stream *stream_open(const struct corpus *corpus, const struct config *c,
                           enum stream_part part) {
    stream_check(corpus, c);
    struct stream *s = memory_alloc(sizeof *s);
    s->corpus = corpus;
    s->labels = labels_new(corpus, c);
    if (c->dataset.reverse_complement && part == STREAM_TRAIN)
        s->complement = tokens_complement((enum alphabet_kind)c->dataset.alphabet);
    s->part = part;
    s->bos_eos = (enum bos_kind)c->dataset.bos_eos;
    s->bos = corpus->ready ? corpus->eos : TOKEN_BOS;
    s->eos = corpus->eos;
    s->window = c->dataset.max_seq_length;
    s->stride = c->dataset.stride;
    s->content = content_of(c);
    int whole = part == STREAM_ALL || c->dataset.holdout_share == 0;
    for (int64_t r = 0; r < corpus->n_records; r++) {
        if (!whole && c->dataset.holdout_by == HOLDOUT_BLOCK)
            add_blocks(s, r, c->dataset.holdout_block, holdout_period(c));
        else if (!whole)
            add_record(s, r, c->dataset.holdout_share);
        else if (part != STREAM_HELD_OUT)
            add_segment(s, r, 0, corpus->length[r]);
    }
    return s;
}

void stream_close(struct stream *s) {
    if (s == NULL) return;
    labels_free(s->labels);
    memory_free(s->segments);
    memory_free(s);
}

int64_t stream_tokens(const struct stream *s) {
    return s->n_tokens;
}

/* The window that holds place `at` of the stream, and where in it that is. */
static struct window find_window(const struct stream *s, int64_t at, int64_t *offset) {
    int64_t low = 0, high = s->n_segments;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (s->segments[middle].first <= at)
            low = middle;
        else
            high = middle;
    }
    const struct segment *g = &s->segments[low];
    int64_t in_strand = at - g->first, strand = strand_tokens(s, g);
    struct window w = {.segment = low, .record = g->record, .reverse = in_strand >= strand};
    if (w.reverse) in_strand -= strand;
    struct sequence q = sequence_of(s, g, w.reverse);
    int64_t i_window = in_strand / s->window;
    *offset = in_strand % s->window;
    int64_t begin = i_window * (s->content - s->stride), end = least(q.n, begin + s->content);
    int wrapped = s->bos_eos == BOS_WINDOW;
    w.head = wrapped || (q.head && begin == 0);
    w.tail = wrapped || (q.tail && end == q.n);
    int64_t first_base = most(0, begin - q.head), end_base = least(end - q.head, q.left + g->n);
    w.n_bases = end_base - first_base;
    w.n = w.head + w.n_bases + w.tail;
    w.from = w.reverse ? g->start + g->n - end_base : g->start - q.left + first_base;
    w.first_target = i_window == 0 ? w.head + q.left : (wrapped ? 1 : 0) + s->stride;
    return w;
}

/* Bases i..i+n-1 of the window, in the order of its strand. */
static void read_bases(const struct stream *s, const struct window *w, int64_t i, int64_t n,
                       int32_t *tokens) {
    int64_t from = w->reverse ? w->from + w->n_bases - i - n : w->from + i;
    corpus_read(s->corpus, w->record, from, n, (uint32_t *)tokens);
    if (!w->reverse) return;
    for (int64_t a = 0, b = n - 1; a <= b; a++, b--) {
        int32_t x = s->complement[tokens[a]];
        tokens[a] = s->complement[tokens[b]];
        tokens[b] = x;
    }
}

int64_t stream_read(const struct stream *s, int64_t at, int64_t n, int32_t *tokens, int32_t *labels,
                    float *weights) {
    if (at >= s->n_tokens || n <= 0) return 0;
    int64_t offset;
    struct window w = find_window(s, at, &offset);
    n = least(n, w.n - offset);

    /* places in the window: bases a..b-1, of them targets t..b-1 */
    int64_t a = most(offset, w.head), b = least(offset + n, w.n - w.tail);
    if (offset < w.head) tokens[0] = s->bos;
    if (a < b) read_bases(s, &w, a - w.head, b - a, tokens + (a - offset));
    if (offset + n > w.n - w.tail) tokens[n - 1] = s->eos;

    int64_t t = least(most(most(w.first_target, offset + 1), a), offset + n);
    for (int64_t i = 0; i < t - offset; i++) labels[i] = -100, weights[i] = 0;
    if (t < b)
        labels_fill(s->labels, s->corpus->offset[w.record] + w.from + t - w.head,
                    tokens + (t - offset), b - t, labels + (t - offset), weights + (t - offset));
    for (int64_t i = most(t, b) - offset; i < n; i++) labels[i] = -100, weights[i] = 0;
    return n;
}

int64_t stream_segments(const struct stream *s) {
    return s->n_segments;
}

struct stream_segment stream_segment(const struct stream *s, int64_t i) {
    const struct segment *g = &s->segments[i];
    return (struct stream_segment){.record = g->record, .start = g->start, .n = g->n};
}

struct stream_fresh stream_fresh(const struct stream *s, int64_t at, int64_t n) {
    int64_t offset;
    struct window w = find_window(s, at, &offset);
    assert(!w.reverse && n <= w.n - offset);
    int64_t a = most(offset, w.first_target), b = least(offset + n, w.n - w.tail);
    return (struct stream_fresh){.segment = w.segment,
                                 .first = w.from + a - w.head - s->segments[w.segment].start,
                                 .skip = a - offset,
                                 .n = most(b - a, 0)};
}

int64_t stream_targets(const struct stream *s) {
    size_t room = (size_t)s->window;
    int32_t *tokens = memory_alloc_array(room, sizeof *tokens),
            *labels = memory_alloc_array(room, sizeof *labels);
    float *weights = memory_alloc_array(room, sizeof *weights);
    int64_t n_targets = 0;
    for (int64_t at = 0, n; (n = stream_read(s, at, s->window, tokens, labels, weights)) > 0;
         at += n) {
        for (int64_t i = 0; i < n; i++) n_targets += labels[i] != -100;
        watchdog_progress();
    }
    memory_free(tokens);
    memory_free(labels);
    memory_free(weights);
    return n_targets;
}
