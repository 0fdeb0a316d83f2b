#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/pack.h"
#include "data/tokens.h"
#include "train/run.h"
#include <errno.h>
#include <math.h>
#include <string.h>

enum { MOST_PATH = 4096 };

/* The packed form of `path`, found or made on rank 0; every rank gets its name. */
static char *packed(const char *path, const struct config *c, const char *cache) {
    char name[MOST_PATH] = "";
    if (log_rank() == 0) {
        struct pack_options o = {.alphabet = (enum alphabet_kind)c->dataset.alphabet,
                                 .text_field = c->dataset.text_field};
        char *found = pack_cached(path, cache, &o);
        if (strlen(found) >= sizeof name) die_user(EXIT_DATA, "%s: the name is too long", found);
        strcpy(name, found);
        memory_free(found);
    }
    user_agree();
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    return memory_string(name);
}

static struct corpus *open_packed(const char *path, const struct config *c, const char *cache) {
    char *name = packed(path, c, cache);
    struct corpus *corpus = NULL;
    /* rank 0 first: it finds the user's mistakes for all */
    if (log_rank() == 0) {
        corpus = corpus_open(name);
        stream_check(corpus, c);
    }
    user_agree();
    if (!corpus) corpus = corpus_open(name);
    memory_free(name);
    return corpus;
}

/* The largest token that a stream of this corpus can hold: its own, BOS, and complements of its
 * letters. */
static uint32_t largest_token(const struct corpus *corpus, const struct config *c) {
    uint32_t largest = corpus->max_token;
    if (!corpus->ready && largest < TOKEN_BOS) largest = TOKEN_BOS;
    if (corpus->ready && largest < (uint32_t)corpus->eos) largest = (uint32_t)corpus->eos;
    if (!c->dataset.reverse_complement) return largest;
    const unsigned char *complement = tokens_complement((enum alphabet_kind)c->dataset.alphabet);
    for (uint32_t x = 0; complement && x <= corpus->max_token && x < 256; x++)
        if (complement[x] > largest) largest = complement[x];
    return largest;
}

/* A corpus made for another alphabet, or with tokens that the model does not have. On rank 0. */
static void check_corpus(const struct corpus *corpus, const char *path, const struct config *c) {
    if (!corpus->ready && corpus->alphabet != c->dataset.alphabet)
        die_user(EXIT_DATA, "%s: packed as %s, but dataset.alphabet is %s", path,
                 tokens_alphabet_name((enum alphabet_kind)corpus->alphabet),
                 tokens_alphabet_name((enum alphabet_kind)c->dataset.alphabet));
    uint32_t largest = largest_token(corpus, c);
    if (largest >= (uint64_t)c->model.vocab_size)
        die_user(EXIT_DATA, "%s: token %u does not fit model.vocab_size %lld", path, largest,
                 (long long)c->model.vocab_size);
}

static const char *source_path(const struct config *c, int i) {
    return c->dataset.n_sources ? c->dataset.sources[i].path : c->dataset.path;
}

/* The user's mistakes that only the data show. On rank 0. */
static void check(const struct run_data *d, const struct config *c) {
    for (int i = 0; i < d->n_sources; i++) {
        check_corpus(d->corpora[i], source_path(c, i), c);
        if (stream_tokens(d->train[i]) == 0)
            die_user(EXIT_DATA, "%s: no tokens to train on (%lld records)", source_path(c, i),
                     (long long)d->corpora[i]->n_records);
    }
    if (d->held_out_corpus) check_corpus(d->held_out_corpus, c->validation.data_path, c);
    if (!c->validation.enabled) return;
    if (d->n_held_out == 0)
        die_user(EXIT_CONFIG, "validation.enabled: nothing is held out; set dataset.holdout_share "
                              "or validation.data_path");
    if (d->held_out_targets == 0)
        die_user(EXIT_CONFIG, "validation.enabled: the held-out part has no targets; try "
                              "dataset.holdout_by block or a larger dataset.holdout_share");
}

void run_data_open(struct run_data *d, const struct config *c, const char *cache) {
    memset(d, 0, sizeof *d);
    d->n_sources = c->dataset.n_sources ? (int)c->dataset.n_sources : 1;
    d->corpora = memory_alloc_array((size_t)d->n_sources, sizeof *d->corpora);
    d->train = memory_alloc_array((size_t)d->n_sources, sizeof(struct stream *));
    d->held_out = memory_alloc_array((size_t)d->n_sources, sizeof(struct stream *));
    d->weights = memory_alloc_array((size_t)d->n_sources, sizeof *d->weights);
    for (int i = 0; i < d->n_sources; i++) {
        d->corpora[i] = open_packed(source_path(c, i), c, cache);
        d->train[i] = stream_open(d->corpora[i], c, STREAM_TRAIN);
        d->weights[i] = c->dataset.n_sources ? c->dataset.sources[i].weight : 1;
        if (!c->validation.data_path && c->dataset.holdout_share > 0)
            d->held_out[d->n_held_out++] = stream_open(d->corpora[i], c, STREAM_HELD_OUT);
    }
    if (c->validation.data_path) {
        d->held_out_corpus = open_packed(c->validation.data_path, c, cache);
        d->held_out[d->n_held_out++] = stream_open(d->held_out_corpus, c, STREAM_ALL);
    }
    if (log_rank() == 0) {
        for (int i = 0; i < d->n_held_out; i++)
            d->held_out_targets += stream_targets(d->held_out[i]);
        check(d, c);
    }
    user_agree();
    for (int k = 0; k < MARKOV_ORDERS; k++) d->markov.bits_per_base[k] = NAN;
    if (log_rank() == 0 && c->validation.enabled && d->n_sources == 1) {
        d->chains = markov_fit(d->train[0], c);
        markov_score(d->chains, d->held_out[0], c->validation.num_batches, &d->markov, NULL);
    }
}

const struct corpus *run_data_held_out(const struct run_data *d, int i) {
    /* without data_path every source has a held-out stream */
    return d->held_out_corpus ? d->held_out_corpus : d->corpora[i];
}

void run_data_close(struct run_data *d) {
    markov_free(d->chains);
    for (int i = 0; i < d->n_held_out; i++) stream_close(d->held_out[i]);
    if (d->held_out_corpus) corpus_close(d->held_out_corpus);
    for (int i = 0; i < d->n_sources; i++) {
        stream_close(d->train[i]);
        corpus_close(d->corpora[i]);
    }
    memory_free(d->corpora);
    memory_free(d->train);
    memory_free(d->held_out);
    memory_free(d->weights);
}
