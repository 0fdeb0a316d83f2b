/* The virtual token stream: windows against a plain reading of their definition, coverage, held-out
 * blocks, labels, chunks. */
#include "config.h"
#include "base/die.h"
#include "base/memory.h"
#include "data/batch.h"
#include "data/loader.h"
#include "data/stream.h"
#include "data/tokens.h"
#include "hand.h"
#include "tap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A stream written out. */
struct flat {
    int32_t *tokens, *labels;
    float *weights;
    int64_t n, room;
};

static struct flat flat_new(int64_t room) {
    size_t n = (size_t)room;
    return (struct flat){.tokens = memory_alloc_array(n, sizeof(int32_t)),
                         .labels = memory_alloc_array(n, sizeof(int32_t)),
                         .weights = memory_alloc_array(n, sizeof(float)),
                         .room = room};
}

static void flat_free(struct flat *f) {
    memory_free(f->tokens);
    memory_free(f->labels);
    memory_free(f->weights);
}

static struct flat read_windows(const struct stream *s) {
    struct flat f = flat_new(stream_tokens(s) + 1);
    for (int64_t n; (n = stream_read(s, f.n, f.room - f.n, f.tokens + f.n, f.labels + f.n,
                                     f.weights + f.n)) > 0;)
        f.n += n;
    return f;
}

static void put(struct flat *f, int32_t token, int is_target) {
    f->tokens[f->n] = token;
    f->labels[f->n] = is_target ? token : -100;
    f->weights[f->n++] = is_target ? 1 : 0;
}

/* The definition, for one strand of a whole record of ACGT. */
static void define_strand(struct flat *f, const int32_t *bases, int64_t n, const struct config *c) {
    int64_t T = c->dataset.max_seq_length, stride = c->dataset.stride;
    int32_t *seq = memory_alloc_array((size_t)n + 2, sizeof *seq);
    int64_t length = 0, room = c->dataset.bos_eos == BOS_WINDOW ? T - 2 : T;
    if (n == 0) {
        memory_free(seq);
        return;
    }
    if (c->dataset.bos_eos == BOS_RECORD) seq[length++] = TOKEN_BOS;
    for (int64_t i = 0; i < n; i++) seq[length++] = bases[i];
    if (c->dataset.bos_eos == BOS_RECORD) seq[length++] = TOKEN_EOS;
    for (int64_t begin = 0;; begin += room - stride) {
        int64_t end = begin + room < length ? begin + room : length;
        if (c->dataset.bos_eos == BOS_WINDOW) put(f, TOKEN_BOS, 0);
        for (int64_t i = begin; i < end; i++) {
            int context = begin > 0 && i - begin < stride,
                first = i == begin && c->dataset.bos_eos != BOS_WINDOW;
            put(f, seq[i], !context && !first && seq[i] > TOKEN_UNK);
        }
        if (c->dataset.bos_eos == BOS_WINDOW) put(f, TOKEN_EOS, 0);
        if (end == length) break;
    }
    memory_free(seq);
}

static int32_t other_strand(int32_t x) {
    return x == 'A' ? 'T' : x == 'C' ? 'G' : x == 'G' ? 'C' : 'A';
}

static struct flat define(const struct corpus *corpus, const struct config *c) {
    struct flat f = flat_new(1 << 16);
    for (int64_t r = 0; r < corpus->n_records; r++) {
        int64_t n = corpus->length[r];
        int32_t *bases = memory_alloc_array((size_t)n, sizeof *bases);
        for (int64_t i = 0; i < n; i++)
            bases[i] = ((const unsigned char *)corpus->tokens)[corpus->offset[r] + i];
        define_strand(&f, bases, n, c);
        for (int64_t i = 0; i < n; i++)
            bases[n - 1 - i] =
                other_strand(((const unsigned char *)corpus->tokens)[corpus->offset[r] + i]);
        if (c->dataset.reverse_complement) define_strand(&f, bases, n, c);
        memory_free(bases);
    }
    return f;
}

/* Chunks of every size say what the windows say, but that the first token of a chunk is no target.
 */
static int chunks_agree(const struct stream *s, const struct flat *f, int capacity) {
    struct batch *b = batch_new(capacity);
    int ok = loader_chunks(s, capacity) == (f->n + capacity - 1) / capacity;
    for (int64_t chunk = 0; chunk < loader_chunks(s, capacity) + 1; chunk++) {
        loader_fill_chunk(s, chunk, b);
        int64_t at = chunk * capacity,
                n = f->n - at < 0          ? 0
                    : f->n - at < capacity ? f->n - at
                                           : capacity,
                n_targets = 0;
        ok = ok && b->n == n && b->cu_seqlens[0] == 0 && b->cu_seqlens[b->n_documents] == n;
        for (int d = 0; ok && d < b->n_documents; d++) {
            ok = b->cu_seqlens[d] < b->cu_seqlens[d + 1];
            for (int i = b->cu_seqlens[d]; i < b->cu_seqlens[d + 1]; i++) {
                int last = i + 1 == b->cu_seqlens[d + 1];
                ok = ok && b->tokens[i] == f->tokens[at + i] &&
                     b->positions[i] == i - b->cu_seqlens[d] &&
                     b->targets[i] == (last ? -100 : f->labels[at + i + 1]) &&
                     b->weights[i] == (last ? 0 : f->weights[at + i + 1]);
                n_targets += b->targets[i] != -100;
            }
            /* the first token of a document is a target only where a chunk cut its window, and is
             * lost there */
            if (d > 0) ok = ok && f->labels[at + b->cu_seqlens[d]] == -100;
        }
        ok = ok && b->n_targets == n_targets && b->weight == (double)n_targets;
        for (int i = b->n; i < capacity; i++)
            ok = ok && b->tokens[i] == TOKEN_PAD && b->targets[i] == -100 && b->weights[i] == 0 &&
                 b->positions[i] == 0;
    }
    batch_free(b);
    return ok;
}

static void test_definition(void) {
    static const int64_t windows[][2] = {{8, 0}, {8, 1}, {8, 3}, {5, 2}, {3, 0}, {9, 6}};
    static const int capacities[] = {1, 2, 7, 8, 13, 64, 1000};
    int same = 1, counted = 1, chunks = 1, n_cases = 0;
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
        for (int bos = BOS_RECORD; bos <= BOS_NONE; bos++)
            for (int rc = 0; rc < 2; rc++) {
                int64_t T = windows[w][0];
                const int64_t lengths[] = {T, 0, 1, T - 2, T - 1, T + 1, 2, 0, 3 * T + 2, 100};
                struct config c = hand_config(T, windows[w][1], 1);
                c.dataset.bos_eos = bos;
                c.dataset.reverse_complement = rc;
                struct corpus *corpus = hand_random(lengths, 10, "ACGT", 5);
                struct stream *s = stream_open(corpus, &c, STREAM_TRAIN);
                struct flat is = read_windows(s), should = define(corpus, &c);
                size_t bytes = (size_t)should.n * 4;
                same = same && is.n == should.n && stream_tokens(s) == should.n &&
                       memcmp(is.tokens, should.tokens, bytes) == 0 &&
                       memcmp(is.labels, should.labels, bytes) == 0 &&
                       memcmp(is.weights, should.weights, bytes) == 0;
                int64_t n_targets = 0;
                for (int64_t i = 0; i < should.n; i++) n_targets += should.labels[i] != -100;
                counted = counted && stream_targets(s) == n_targets;
                for (size_t k = 0; k < sizeof capacities / sizeof *capacities; k++)
                    chunks = chunks && chunks_agree(s, &is, capacities[k]);
                n_cases++;
                flat_free(&is);
                flat_free(&should);
                stream_close(s);
                hand_free(corpus);
            }
    tap_ok(same, "windows are as defined, both strands (%d cases)", n_cases);
    tap_ok(counted, "stream_targets counts them");
    tap_ok(chunks, "chunks of every size lose the first token of a cut window and nothing else");
}

/* Numbered tokens: every base a target exactly once, but for those that nothing precedes. */
static void test_coverage(void) {
    static const int64_t lengths[] = {1000, 0, 1, 15, 16, 17, 33, 250};
    int ok = 1;
    for (int bos = BOS_RECORD; bos <= BOS_NONE; bos++)
        for (int64_t stride = 0; stride < 12; stride++) {
            struct config c = hand_config(16, stride, 1);
            c.dataset.bos_eos = bos;
            struct corpus *corpus = hand_numbered(lengths, 8, 4);
            struct stream *s = stream_open(corpus, &c, STREAM_ALL);
            struct flat f = read_windows(s);
            int seen[1400] = {0};
            for (int64_t i = 0; i < f.n; i++)
                if (f.labels[i] != -100) seen[f.labels[i] - 100]++;
            int base = 0;
            for (int r = 0; r < 8; r++)
                for (int64_t i = 0; i < lengths[r]; i++) {
                    int64_t place = i + (bos == BOS_RECORD);
                    int lost = bos == BOS_WINDOW ? 0 : stride == 0 ? place % 16 == 0 : place == 0;
                    ok = ok && seen[base++] == !lost;
                }
            flat_free(&f);
            stream_close(s);
            hand_free(corpus);
        }
    tap_ok(ok, "every base is a target once an epoch");
}

static int in_held_out(int64_t position, int64_t block, int64_t period) {
    return position / block % period == period - 1;
}

static void test_blocks(void) {
    enum { BLOCK = 10, PERIOD = 4, N = 507 };
    static const int64_t lengths[] = {
        N, 35, 38}; /* the second ends before a held-out block, the third in one */
    int apart = 1, context = 1, once = 1, before = 1;
    for (int bos = BOS_RECORD; bos <= BOS_NONE; bos++)
        for (int64_t stride = 0; stride < 9; stride += 2) {
            struct config c = hand_config(12, stride, 1);
            c.dataset.bos_eos = bos;
            c.dataset.holdout_by = HOLDOUT_BLOCK;
            c.dataset.holdout_share = 0.25;
            c.dataset.holdout_block = BLOCK;
            struct corpus *corpus = hand_numbered(lengths, 3, 2);
            struct stream *train = stream_open(corpus, &c, STREAM_TRAIN),
                          *held = stream_open(corpus, &c, STREAM_HELD_OUT);
            struct flat a = read_windows(train), b = read_windows(held);
            int seen_train[N + 73] = {0}, seen_held[N + 73] = {0}, is_held[N + 73];
            for (int r = 0, i = 0; r < 3; r++)
                for (int64_t p = 0; p < lengths[r]; p++)
                    is_held[i++] = in_held_out(p, BLOCK, PERIOD);
            for (int64_t i = 0; i < a.n; i++) {
                if (a.tokens[i] != corpus->eos) apart = apart && !is_held[a.tokens[i] - 100];
                if (a.labels[i] != -100) seen_train[a.labels[i] - 100]++;
            }
            for (int64_t i = 0; i < b.n; i++) {
                if (b.tokens[i] != corpus->eos && !is_held[b.tokens[i] - 100]) {
                    int64_t to_block = 1;
                    while (!is_held[b.tokens[i] - 100 + to_block]) to_block++;
                    context = context && to_block <= stride && b.labels[i] == -100;
                    before = before && b.labels[i] == -100;
                }
                if (b.labels[i] != -100) seen_held[b.labels[i] - 100]++;
            }
            for (int i = 0; i < N + 73 && stride > 0; i++) {
                int record_start = i == 0 || i == N || i == N + 35;
                int start = record_start || is_held[i] != is_held[i - 1];
                /* training bases at a segment's start that nothing precedes */
                int lost = !is_held[i] && start && bos != BOS_WINDOW &&
                           !(record_start && bos == BOS_RECORD);
                once =
                    once && seen_train[i] == (!is_held[i] && !lost) && seen_held[i] == is_held[i];
            }
            flat_free(&a);
            flat_free(&b);
            stream_close(train);
            stream_close(held);
            hand_free(corpus);
        }
    tap_ok(apart, "no training window touches a held-out block");
    tap_ok(context && before,
           "held-out targets see at most stride bases to their left, which are no targets");
    tap_ok(once, "held-out and training bases are each a target once");

    /* reverse strand and BOS at the true ends only */
    const char *text[] = {"AAAAACCCCCGGGGGTTTTTAC"};
    struct config c = hand_config(64, 4, 1);
    c.dataset.holdout_by = HOLDOUT_BLOCK;
    c.dataset.holdout_share = 1.0 / 3;
    c.dataset.holdout_block = 5;
    c.dataset.reverse_complement = 1;
    struct corpus *corpus = hand_text(text, 1);
    struct stream *train = stream_open(corpus, &c, STREAM_TRAIN),
                  *held = stream_open(corpus, &c, STREAM_HELD_OUT);
    struct flat a = read_windows(train), b = read_windows(held);
    static const int32_t should[] = {
        2,   'A', 'A', 'A', 'A', 'A', 'C', 'C', 'C', 'C', 'C', /* first run, no EOS */
        'G', 'G', 'G', 'G', 'G', 'T', 'T', 'T', 'T', 'T', 0,   /* its other strand */
        'T', 'T', 'T', 'T', 'T', 'A', 'C', 0,                  /* second run */
        2,   'G', 'T', 'A', 'A', 'A', 'A', 'A'};
    static const int32_t held_should[] = {'C', 'C', 'C', 'C', 'G', 'G', 'G', 'G', 'G'};
    tap_ok(a.n == 38 && memcmp(a.tokens, should, sizeof should) == 0,
           "strands of segments; BOS and EOS at true ends");
    tap_ok(b.n == 9 && memcmp(b.tokens, held_should, sizeof held_should) == 0 &&
               stream_targets(held) == 5,
           "the held-out part has one strand");
    flat_free(&a);
    flat_free(&b);
    stream_close(train);
    stream_close(held);
    hand_free(corpus);
}

/* Chunks of 7 tokens: each base of a part is fresh once, where stream_fresh says. */
static void test_fresh(void) {
    enum { CHUNK = 7, N = 580 };
    static const int64_t lengths[] = {507, 0, 35, 38}, first[] = {0, 507, 507, 542};
    int once = 1, right = 1;
    for (int part = STREAM_HELD_OUT; part <= STREAM_ALL; part++)
        for (int bos = BOS_RECORD; bos <= BOS_NONE; bos++)
            for (int64_t stride = 0; stride < 9; stride += 2) {
                struct config c = hand_config(12, stride, CHUNK);
                c.dataset.bos_eos = bos;
                c.dataset.holdout_by = HOLDOUT_BLOCK;
                c.dataset.holdout_share = part == STREAM_ALL ? 0 : 0.25;
                c.dataset.holdout_block = 10;
                struct corpus *corpus = hand_numbered(lengths, 4, 2);
                struct stream *s = stream_open(corpus, &c, (enum stream_part)part);
                struct batch *b = batch_new(CHUNK);
                int seen[N] = {0}, all = 0, targets = 1;
                for (int64_t k = 0; k < loader_chunks(s, CHUNK); k++) {
                    loader_fill_chunk(s, k, b);
                    for (int d = 0; d < b->n_documents; d++) {
                        int at = b->cu_seqlens[d], n = b->cu_seqlens[d + 1] - at;
                        struct stream_fresh f = stream_fresh(s, k * CHUNK + at, n);
                        struct stream_segment g = stream_segment(s, f.segment);
                        for (int64_t i = 0; i < f.n; i++) {
                            int64_t base = first[g.record] + g.start + f.first + i;
                            right = right && f.skip + i < n && f.first + i < g.n &&
                                    b->tokens[at + f.skip + i] == 100 + base;
                            seen[base]++;
                        }
                        for (int64_t i = 0; i < n; i++)
                            targets = targets && (b->targets[at + i] == -100 ||
                                                  (i + 1 >= f.skip && i + 1 < f.skip + f.n));
                    }
                }
                for (int64_t i = 0; i < stream_segments(s); i++) {
                    struct stream_segment g = stream_segment(s, i);
                    for (int64_t p = 0; p < g.n; p++)
                        all++, once = once && seen[first[g.record] + g.start + p] == 1;
                }
                for (int i = 0; i < N; i++) all -= seen[i];
                once = once && all == 0 && (part != STREAM_ALL || seen[0] == 1);
                right = right && targets;
                batch_free(b);
                stream_close(s);
                hand_free(corpus);
            }
    tap_ok(right, "fresh bases are where they are said to be, and targets are among them");
    tap_ok(once, "each base of a part is fresh once");
}

/* Whether a record has these labels, '.' for none, and this weight on its lower-case targets. */
static int labelled(const char *record, const struct config *c, const char *labels, float weight) {
    struct corpus *corpus = hand_text(&record, 1);
    struct stream *s = stream_open(corpus, c, STREAM_ALL);
    struct flat f = read_windows(s);
    int ok = f.n == (int64_t)strlen(record) + 2;
    for (int64_t i = 1; ok && i + 1 < f.n; i++) {
        int lower = record[i - 1] >= 'a' && record[i - 1] <= 'z';
        int32_t label = labels[i - 1] == '.' ? -100 : labels[i - 1];
        ok = f.tokens[i] == record[i - 1] && f.labels[i] == label &&
             f.weights[i] == (label == -100 ? 0
                              : lower       ? weight
                                            : 1);
    }
    if (!ok) {
        tap_note("of %s", record);
        for (int64_t i = 0; i < f.n; i++)
            tap_note("%d %d %g", f.tokens[i], f.labels[i], (double)f.weights[i]);
    }
    flat_free(&f);
    stream_close(s);
    hand_free(corpus);
    return ok;
}

static void test_labels(void) {
    struct config c = hand_config(100, 8, 100);
    c.dataset.lowercase_weight = 0.25;
    tap_ok(labelled("ACgtNnR-*.U", &c, "ACGT.......", 0.25f),
           "dna: letters in either case, soft mask's weight");
    c.dataset.uppercase_labels = TRI_FALSE;
    tap_ok(labelled("ACgtN", &c, "ACgt.", 0.25f), "labels keep their case on demand");
    c.dataset.uppercase_labels = TRI_AUTO;
    c.dataset.mask_degenerate_bases = 0;
    tap_ok(labelled("ACnR-*", &c, "ACNR..", 0.25f),
           "every letter is a target without mask_degenerate_bases");
    c.dataset.mask_degenerate_bases = 1;
    c.dataset.alphabet = ALPHABET_RNA;
    tap_ok(labelled("ACGUTu", &c, "ACGU.U", 0.25f), "rna");
    c.dataset.alphabet = ALPHABET_PROTEIN;
    tap_ok(labelled("MKVbxw*", &c, "MKV..w.", 0.25f), "protein keeps case");
    c.dataset.alphabet = ALPHABET_BYTES;
    tap_ok(labelled("a B,|\4\3", &c, "a B,|\4.", 0.25f), "bytes");
    c.dataset.mask_tags = 1;
    tap_ok(labelled("x|A|y|B", &c, "x...y.B", 0.25f), "a bar without a partner masks itself");
    c.dataset.alphabet = ALPHABET_DNA;
    tap_ok(labelled("AC|d__GATTACA;|GT|A||C|T", &c, "AC.............GT......T", 1), "tags");

    /* a window that starts inside a tag knows; a tag ends with its record */
    static const char *const text[] = {"ACGT|GATTACAGATTACA|ACGT|A", "ACGT|C|"};
    c = hand_config(6, 1, 6);
    c.dataset.bos_eos = BOS_WINDOW;
    c.dataset.mask_tags = 1;
    struct corpus *corpus = hand_text(text, 2);
    struct stream *s = stream_open(corpus, &c, STREAM_TRAIN);
    tap_ok(stream_targets(s) == 4 + 4 + 1 + 4, "tags over many windows: %lld targets",
           (long long)stream_targets(s));
    stream_close(s);
    hand_free(corpus);
}

/* Ready tokens of one byte are no letters: all but EOS are targets, 0 to 3 too, and no BOS is made
 * up. */
static void test_ready_bytes(void) {
    static const char *const records[] = {"\1\2\3\1\2"};
    static const int32_t tokens[] = {4, 1, 2, 3, 1, 2, 4}, labels[] = {-100, 1, 2, 3, 1, 2, -100};
    struct corpus *corpus = hand_text(records, 1);
    struct config c = hand_config(16, 2, 16);
    int32_t is[16], label[16];
    float weight[16];
    corpus->ready = 1, corpus->eos = 4, corpus->alphabet = c.dataset.alphabet = ALPHABET_BYTES;
    struct stream *s = stream_open(corpus, &c, STREAM_ALL);
    int64_t n = stream_read(s, 0, 16, is, label, weight);
    tap_ok(n == 7 && memcmp(is, tokens, sizeof tokens) == 0 &&
               memcmp(label, labels, sizeof labels) == 0 && stream_targets(s) == 5,
           "ready tokens of one byte: all but EOS are targets");
    stream_close(s);
    hand_free(corpus);
}

static void test_ordinary(void) {
    static const char *const text[] = {"", "NNNNNNNNNN", ""};
    struct config c = hand_config(6, 2, 32);
    struct corpus *corpus = hand_text(text, 3);
    struct stream *s = stream_open(corpus, &c, STREAM_TRAIN),
                  *none = stream_open(corpus, &c, STREAM_HELD_OUT);
    struct batch *b = batch_new(32);
    loader_fill_chunk(s, 0, b);
    tap_ok(b->n == stream_tokens(s) && b->n_documents == 3 && b->n_targets == 0 && b->weight == 0 &&
               stream_targets(s) == 0,
           "a record of N has windows without targets");
    loader_fill_chunk(none, 0, b);
    tap_ok(stream_tokens(none) == 0 && loader_chunks(none, 32) == 0 && b->n == 0 &&
               b->n_documents == 0,
           "nothing is held out: an empty stream");
    batch_free(b);
    stream_close(s);
    stream_close(none);
    hand_free(corpus);
}

static void test_batch(void) {
    static const int32_t tokens[] = {10, 11, 12}, labels[] = {7, -100, 12};
    struct batch *b = batch_new(8);
    batch_append(b, tokens, labels, NULL, 3);
    batch_append(b, tokens, labels, (const float[]){0, 0, 0.5f}, 3);
    batch_append(b, tokens, labels, NULL, 0);
    batch_append(b, tokens, labels, NULL, 1);
    tap_ok(b->n == 7 && b->n_documents == 3 && b->cu_seqlens[1] == 3 && b->cu_seqlens[2] == 6 &&
               b->cu_seqlens[3] == 7 && b->n_targets == 2 && b->weight == 1.5 &&
               b->targets[0] == -100 && b->targets[1] == 12 && b->targets[2] == -100 &&
               b->targets[4] == 12 && b->weights[4] == 0.5f && b->weights[1] == 1 &&
               b->targets[6] == -100 && b->positions[5] == 2 && b->tokens[7] == TOKEN_PAD,
           "documents are appended, labels move beside the token before");
    batch_clear(b);
    tap_ok(b->n == 0 && b->n_documents == 0 && b->tokens[0] == TOKEN_PAD && b->n_targets == 0 &&
               b->weight == 0,
           "a batch is cleared");
    batch_free(b);
}

static void test_names(void) {
    int held = 0, nested = 1;
    for (int i = 0; i < 20000; i++) {
        char *name = memory_format("NC_%06d.1", i);
        held += stream_holds_out(name, 0.1);
        nested = nested && (!stream_holds_out(name, 0.1) || stream_holds_out(name, 0.2));
        memory_free(name);
    }
    tap_ok(abs(held - 2000) < 150, "a share of the names is held out: %d of 20000", held);
    tap_ok(nested && !stream_holds_out("a", 0) && stream_holds_out("a", 1),
           "a larger share holds out the same and more");
    tap_ok(stream_holds_out("lambda", 0.481084) && !stream_holds_out("lambda", 0.481082),
           "the hash is the one that decks were split by");
}

/* The exit code of stream_check on these settings, in a process of its own (before MPI starts). */
static int refused(const struct config *c, int token_bytes) {
    pid_t child = fork();
    if (child == 0) {
        struct corpus corpus = {
            .path = (char[]){"x.h5"}, .token_bytes = token_bytes, .ready = token_bytes > 1};
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
        stream_check(&corpus, c);
        _exit(0);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct refusals {
    int stride, stride_window, protein, tags, block, wide, fine;
};

static struct refusals try_refusals(void) {
    struct refusals r;
    struct config c = hand_config(8, 8, 8);
    r.stride = refused(&c, 1);
    c = hand_config(8, 6, 8);
    r.fine = refused(&c, 1);
    c.dataset.bos_eos = BOS_WINDOW;
    r.stride_window = refused(&c, 1);
    c = hand_config(8, 2, 8);
    c.dataset.reverse_complement = 1;
    r.wide = refused(&c, 2);
    c.dataset.mask_tags = 1;
    r.tags = refused(&c, 1);
    c.dataset.mask_tags = 0;
    c.dataset.alphabet = ALPHABET_PROTEIN;
    r.protein = refused(&c, 1);
    c = hand_config(8, 2, 8);
    c.dataset.holdout_by = HOLDOUT_BLOCK;
    c.dataset.holdout_share = 0.9;
    r.block = refused(&c, 1);
    return r;
}

int main(int argc, char **argv) {
    struct refusals r = try_refusals();
    tap_open(&argc, &argv);
    tap_ok(r.fine == 0 && r.stride == EXIT_CONFIG && r.stride_window == EXIT_CONFIG,
           "a stride as long as the window is refused");
    tap_ok(r.protein == EXIT_CONFIG && r.tags == EXIT_CONFIG && r.wide == EXIT_CONFIG,
           "a reverse strand of proteins, tags or ready tokens is refused");
    tap_ok(r.block == EXIT_CONFIG, "holding out every block is refused");
    test_definition();
    test_coverage();
    test_blocks();
    test_fresh();
    test_labels();
    test_ready_bytes();
    test_ordinary();
    test_batch();
    test_names();
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
