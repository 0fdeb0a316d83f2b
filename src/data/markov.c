/* One pass counts order 8; the lower orders are its sums over the oldest letters, plus the targets
 * whose context was shorter. */
#include "config.h"
#include "data/markov.h"
#include "base/memory.h"
#include "data/batch.h"
#include "data/loader.h"
#include "data/tokens.h"
#include "grid/watchdog.h"
#include <math.h>
#include <string.h>

enum { LETTERS = 4, MAX_CODE = 1 << 2 * MARKOV_MAX_ORDER, TRAIN_TOKENS = 1 << 27 };

struct markov {
    signed char code[256];          /* 0..3 of a letter in either case, else -1 */
    uint32_t *count[MARKOV_ORDERS]; /* count[k][4^k contexts, 4] */
    double alpha[MARKOV_ORDERS];    /* the add-alpha chosen on training data */
    int capacity;                   /* of the micro-batches */
};

static int64_t n_contexts(int order) {
    return (int64_t)1 << 2 * order;
}

static int code_of(const struct markov *m, int32_t token) {
    return token < 0 || token > 255 ? -1 : m->code[token];
}

static void count_target(struct markov *m, struct markov_sum *none, uint32_t context, int order,
                         int x) {
    (void)none;
    m->count[order][(int64_t)context * LETTERS + x]++;
}

/* A target whose context is `available` letters: orders above that fall back to it. */
static void score_target(struct markov *m, struct markov_sum *sum, uint32_t context, int available,
                         int x) {
    double bits = 0;
    for (int k = 0; k < MARKOV_ORDERS; k++) {
        if (k <= available) {
            const uint32_t *n = m->count[k] + (context & (n_contexts(k) - 1)) * LETTERS;
            double all = (double)n[0] + n[1] + n[2] + n[3];
            bits = log2((all + LETTERS * m->alpha[k]) / (n[x] + m->alpha[k]));
        }
        sum->bits[k] += bits;
    }
    sum->n_targets++;
}

/* Calls visit for each target of document d that is a letter, with the letters before it as a
 * number of base 4, newest lowest, and how many they are, at most 8. */
static void each_target(struct markov *m, const struct batch *b, int d, struct markov_sum *sum,
                        void (*visit)(struct markov *, struct markov_sum *, uint32_t, int, int)) {
    uint32_t context = 0;
    int available = 0;
    for (int i = b->cu_seqlens[d]; i < b->cu_seqlens[d + 1]; i++) {
        int letter = code_of(m, b->tokens[i]), x = code_of(m, b->targets[i]);
        if (letter < 0)
            context = 0, available = 0;
        else {
            context = (context << 2 | (uint32_t)letter) & (MAX_CODE - 1);
            if (available < MARKOV_MAX_ORDER) available++;
        }
        if (x >= 0) visit(m, sum, context & (uint32_t)(n_contexts(available) - 1), available, x);
    }
}

static void count_stream(struct markov *m, const struct stream *s, struct batch *b) {
    int64_t n_chunks = loader_chunks(s, b->capacity), most = 1 + TRAIN_TOKENS / b->capacity;
    int64_t n = n_chunks < most ? n_chunks : most;
    for (int64_t i = 0; i < n; i++) {
        loader_fill_chunk(s, (int64_t)((double)i / (double)n * (double)n_chunks), b);
        watchdog_progress();
        for (int d = 0; d < b->n_documents; d++) each_target(m, b, d, NULL, count_target);
    }
    for (int k = MARKOV_MAX_ORDER - 1; k >= 0; k--) {
        int64_t n_cells = n_contexts(k) * LETTERS;
        for (int64_t i = 0; i < LETTERS * n_cells; i++)
            m->count[k][i % n_cells] += m->count[k + 1][i];
    }
}

/* Log-likelihood of the targets counted, each given all the others. */
static double leave_one_out(const uint32_t *count, int64_t contexts, double alpha) {
    double sum = 0;
    for (int64_t c = 0; c < contexts; c++) {
        const uint32_t *n = count + c * LETTERS;
        double all = (double)n[0] + n[1] + n[2] + n[3];
        if (all == 0) continue;
        for (int x = 0; x < LETTERS; x++)
            if (n[x] > 0) sum += n[x] * log(n[x] - 1 + alpha);
        sum -= all * log(all - 1 + LETTERS * alpha);
    }
    return sum;
}

static double choose_alpha(const uint32_t *count, int64_t contexts) {
    double best = 1, most = -INFINITY;
    for (int e = -8; e <= 12; e++) {
        double likelihood = leave_one_out(count, contexts, ldexp(1, e));
        if (likelihood > most) most = likelihood, best = ldexp(1, e);
    }
    return best;
}

struct markov *markov_fit(const struct stream *train, const struct config *c) {
    struct markov *m = memory_alloc(sizeof *m);
    const char *letters = tokens_letters((enum alphabet_kind)c->dataset.alphabet);
    m->capacity = loader_capacity(c);
    memset(m->code, -1, sizeof m->code);
    if (strlen(letters) == LETTERS)
        for (signed char i = 0; i < LETTERS; i++)
            m->code[(int)letters[i]] = m->code[letters[i] | 32] = i;

    struct batch *b = batch_new(m->capacity);
    for (int k = 0; k < MARKOV_ORDERS; k++)
        m->count[k] = memory_alloc_array((size_t)n_contexts(k) * LETTERS, sizeof *m->count[k]);
    count_stream(m, train, b);
    for (int k = 0; k < MARKOV_ORDERS; k++) m->alpha[k] = choose_alpha(m->count[k], n_contexts(k));
    batch_free(b);
    return m;
}

void markov_free(struct markov *m) {
    for (int k = 0; m && k < MARKOV_ORDERS; k++) memory_free(m->count[k]);
    memory_free(m);
}

static void add(struct markov_sum *to, const struct markov_sum *more) {
    for (int k = 0; k < MARKOV_ORDERS; k++) to->bits[k] += more->bits[k];
    to->n_targets += more->n_targets;
}

void markov_score(struct markov *m, const struct stream *held_out, int64_t n_batches,
                  struct markov_result *result, struct markov_sum *by_segment) {
    struct batch *b = batch_new(m->capacity);
    struct markov_sum all = {.n_targets = 0};
    int64_t n_chunks = loader_chunks(held_out, b->capacity);
    if (n_batches > 0 && n_batches < n_chunks) n_chunks = n_batches;
    for (int64_t i = 0; i < n_chunks; i++) {
        loader_fill_chunk(held_out, i, b);
        watchdog_progress();
        for (int d = 0; d < b->n_documents; d++) {
            struct markov_sum sum = {.n_targets = 0};
            int first = b->cu_seqlens[d], n = b->cu_seqlens[d + 1] - first;
            each_target(m, b, d, &sum, score_target);
            add(&all, &sum);
            if (by_segment)
                add(&by_segment[stream_fresh(held_out, i * b->capacity + first, n).segment], &sum);
        }
    }
    *result = (struct markov_result){.n_targets = all.n_targets};
    for (int k = 0; k < MARKOV_ORDERS; k++) {
        result->alpha[k] = m->alpha[k];
        result->bits_per_base[k] = all.n_targets ? all.bits[k] / (double)all.n_targets : NAN;
        if (result->bits_per_base[k] < result->bits_per_base[result->best]) result->best = k;
    }
    batch_free(b);
}
