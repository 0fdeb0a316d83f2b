/* For text a table of 256 labels and weights says it all but the tags; those are a sorted list of
 * spans, found once, so that a window in the middle of a tag knows where it is. */
#include "config.h"
#include "data/labels.h"
#include "base/memory.h"
#include "data/tokens.h"
#include <stdlib.h>
#include <string.h>

/* Tokens begin..end-1 of /tokens. */
struct span {
    int64_t begin, end;
};

struct labels {
    int text; /* one byte a token: the tables hold */
    int32_t label[256];
    float weight[256];
    int32_t eos;       /* of ready tokens */
    struct span *tags; /* [n_tags], sorted, disjoint */
    int64_t n_tags, room;
};

static int upper(int x) {
    return x >= 'a' && x <= 'z' ? x - 'a' + 'A' : x;
}
static int is_letter(int x) {
    return upper(x) >= 'A' && upper(x) <= 'Z';
}

static void make_tables(struct labels *l, const struct config *c) {
    enum alphabet_kind alphabet = (enum alphabet_kind)c->dataset.alphabet;
    int nucleotides = alphabet == ALPHABET_DNA || alphabet == ALPHABET_RNA;
    int to_upper = c->dataset.uppercase_labels == TRI_TRUE ||
                   (c->dataset.uppercase_labels == TRI_AUTO && nucleotides);
    const char *letters = tokens_letters(alphabet);
    for (int x = 0; x < 256; x++) {
        int target;
        if (alphabet == ALPHABET_BYTES)
            target = x > TOKEN_UNK && x != l->eos;
        else if (c->dataset.mask_degenerate_bases)
            target = is_letter(x) && strchr(letters, upper(x)) != NULL;
        else
            target = is_letter(x);
        l->label[x] = !target ? -100 : to_upper ? upper(x) : x;
        l->weight[x] = !target ? 0 : x != upper(x) ? (float)c->dataset.lowercase_weight : 1;
    }
}

static void add_tag(struct labels *l, int64_t begin, int64_t end) {
    if (l->n_tags == l->room) {
        l->room = l->room ? 2 * l->room : 1024;
        l->tags = memory_resize(l->tags, (size_t)l->room * sizeof *l->tags);
    }
    l->tags[l->n_tags++] = (struct span){begin, end};
}

static int by_begin(const void *a, const void *b) {
    const struct span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static void find_tags(struct labels *l, const struct corpus *c) {
    const char *text = c->tokens;
    for (int64_t r = 0; r < c->n_records; r++) {
        const char *p = text + c->offset[r], *end = p + c->length[r];
        while (p < end && (p = memchr(p, '|', (size_t)(end - p))) != NULL) {
            const char *close = memchr(p + 1, '|', (size_t)(end - p - 1));
            const char *next = close ? close + 1 : p + 1;
            add_tag(l, p - text, next - text);
            p = next;
        }
    }
    if (l->n_tags > 1) qsort(l->tags, (size_t)l->n_tags, sizeof *l->tags, by_begin);
}

struct labels *labels_new(const struct corpus *corpus, const struct config *c) {
    struct labels *l = memory_alloc(sizeof *l);
    l->text = !corpus->ready;
    l->eos = corpus->eos;
    make_tables(l, c);
    if (c->dataset.mask_tags) find_tags(l, corpus);
    return l;
}

void labels_free(struct labels *l) {
    if (l == NULL) return;
    memory_free(l->tags);
    memory_free(l);
}

/* The first tag that ends behind `at`. */
static int64_t tag_behind(const struct labels *l, int64_t at) {
    int64_t low = 0, high = l->n_tags;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (l->tags[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void labels_fill(const struct labels *l, int64_t at, const int32_t *tokens, int64_t n,
                 int32_t *labels, float *weights) {
    if (l->text)
        for (int64_t i = 0; i < n; i++)
            labels[i] = l->label[tokens[i]], weights[i] = l->weight[tokens[i]];
    else
        for (int64_t i = 0; i < n; i++) {
            labels[i] = tokens[i] == l->eos ? -100 : tokens[i];
            weights[i] = tokens[i] == l->eos ? 0 : 1;
        }
    for (int64_t t = tag_behind(l, at); t < l->n_tags && l->tags[t].begin < at + n; t++) {
        int64_t i = l->tags[t].begin > at ? l->tags[t].begin - at : 0;
        for (; i < n && i < l->tags[t].end - at; i++) labels[i] = -100, weights[i] = 0;
    }
}
