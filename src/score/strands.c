#include "config.h"
#include "score/strands.h"
#include "base/memory.h"
#include "data/tokens.h"
#include <limits.h>
#include <string.h>

char *strands_open(struct strands *s, const struct corpus *corpus, struct config *c, int64_t window,
                   int64_t stride, enum strand_kind kind) {
    memset(s, 0, sizeof *s);
    if (window) c->dataset.max_seq_length = window;
    window = c->dataset.max_seq_length;
    if (c->dataset.micro_batch_size > INT_MAX / window)
        return memory_format("--window: dataset.micro_batch_size (%lld) windows of %lld tokens are "
                             "above %d tokens",
                             (long long)c->dataset.micro_batch_size, (long long)window, INT_MAX);
    s->corpus = corpus;
    s->bos = corpus->ready ? corpus->eos : TOKEN_BOS;
    s->complement =
        corpus->ready ? NULL : tokens_complement((enum alphabet_kind)c->dataset.alphabet);
    s->first = kind == STRAND_REVERSE;
    s->last = kind != STRAND_FORWARD;
    s->head = c->dataset.bos_eos == BOS_RECORD;
    s->wrapped = c->dataset.bos_eos == BOS_WINDOW;
    s->content = window - (s->wrapped ? 2 : 0); /* as windows of training, which end with EOS */
    s->stride = stride ? stride : s->content / 2;
    if (s->stride < 1 || s->stride >= s->content)
        return memory_format("--stride: %lld of windows of %lld tokens%s leaves no context",
                             (long long)s->stride, (long long)window,
                             s->wrapped ? ", two of them BOS and EOS," : "");
    if (s->last && !s->complement)
        return memory_format(
            "--strand: only text of the alphabets dna and rna has a reverse strand");
    if (s->last && c->dataset.mask_tags)
        return memory_format("--strand: text with tags (dataset.mask_tags) has no reverse strand");
    s->labels = labels_new(corpus, c);
    s->at.strand = s->first;
    return NULL;
}

void strands_close(struct strands *s) {
    labels_free(s->labels);
}

/* Tokens of a strand of a record; 0: it has no windows. */
static int64_t tokens_of(const struct strands *s, int64_t record) {
    int64_t n = s->corpus->length[record];
    return n ? n + s->head : 0;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

int strands_next(void *context, struct window *w) {
    struct strands *s = context;
    struct window *at = &s->at;
    while (at->record < s->corpus->n_records && tokens_of(s, at->record) == 0) at->record++;
    if (at->record == s->corpus->n_records) return 0;
    int64_t left = tokens_of(s, at->record) - at->first;
    *w = *at;
    w->n = (int)least(s->content, left) + s->wrapped;
    if (left > s->content)
        at->first += s->stride;
    else if (at->strand < s->last)
        at->first = 0, at->strand++;
    else
        at->first = 0, at->strand = s->first, at->record++;
    return 1;
}

void strands_read(const struct strands *s, int64_t record, int64_t from, int64_t n,
                  int32_t *tokens) {
    corpus_read(s->corpus, record, from, n, (uint32_t *)tokens);
}

void strands_turn(const struct strands *s, int32_t *tokens, int64_t n) {
    for (int64_t a = 0, b = n - 1; a <= b; a++, b--) {
        int32_t x = s->complement[tokens[a]];
        tokens[a] = s->complement[tokens[b]];
        tokens[b] = x;
    }
}

void strands_fill(void *context, const struct window *w, int32_t *tokens, int32_t *labels,
                  float *room) {
    const struct strands *s = context;
    const struct corpus *c = s->corpus;
    int64_t from = w->first - s->head, length = c->length[w->record];
    int marks = s->wrapped || from < 0, n = w->n - marks;
    if (marks) tokens[0] = s->bos, labels[0] = -100;
    if (from < 0) from = 0;
    tokens += marks, labels += marks;
    strands_read(s, w->record, w->strand ? length - from - n : from, n, tokens);
    if (w->strand) strands_turn(s, tokens, n);
    /* tags, which lie at places, are on no reverse strand */
    labels_fill(s->labels, c->offset[w->record] + from, tokens, n, labels, room);
}

int strands_fresh(const struct strands *s, const struct window *w) {
    return w->first == 0 ? 0 : (int)(s->content - s->stride) + s->wrapped;
}

int strands_ends(const struct strands *s, const struct window *w) {
    return w->first + w->n - s->wrapped == tokens_of(s, w->record) && w->strand == s->last;
}

int64_t strands_place(const struct strands *s, const struct window *w, int i) {
    int64_t at = w->first + i - s->wrapped - s->head;
    if (at < 0) return -1;
    return w->strand ? s->corpus->length[w->record] - 1 - at : at;
}
