#include "config.h"
#include "data/sequences.h"
#include "base/die.h"
#include "base/h5.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/pack.h"
#include "data/reader.h"
#include "data/records.h"
#include "data/tokens.h"
#include <string.h>

/* What every rank must know to make room. */
struct sizes {
    int64_t n_tokens, n_records;
    int32_t name_bytes;
    uint32_t max_token;
};

static void check_tokens(const char *path, uint32_t largest, const struct config *c) {
    if (largest >= (uint64_t)c->model.vocab_size)
        die_user(EXIT_DATA, "%s: token %u does not fit model.vocab_size %lld", path, largest,
                 (long long)c->model.vocab_size);
}

/* A packed corpus, on rank 0 first: it finds the user's mistakes for all. */
static struct corpus *open_packed(const char *path, const struct config *config) {
    struct corpus *c = NULL;
    if (log_rank() == 0) {
        c = corpus_open(path);
        if (!c->ready && c->alphabet != config->dataset.alphabet)
            die_user(EXIT_DATA, "%s: packed as %s, but dataset.alphabet is %s", path,
                     tokens_alphabet_name((enum alphabet_kind)c->alphabet),
                     tokens_alphabet_name((enum alphabet_kind)config->dataset.alphabet));
        check_tokens(path, c->max_token, config);
    }
    user_agree();
    return c ? c : corpus_open(path);
}

static int is_packed(const char *path, const struct grid *g) {
    char *format = g->rank == 0 ? h5_read_format(path) : NULL;
    int is = format && strcmp(format, "regulon corpus") == 0;
    memory_free(format);
    return agree_int(g, is);
}

static struct records *parse(const char *path, const struct config *c) {
    struct pack_options o = {.alphabet = (enum alphabet_kind)c->dataset.alphabet,
                             .text_field = c->dataset.text_field};
    struct reader *r = reader_open(path, READER_TEXT);
    struct records *out = records_new(1, -1, NULL);
    pack_parse(r, &o, out);
    if (reader_error(r)) die_user(reader_error_code(r), "%s", reader_error(r));
    reader_close(r);
    records_flush(out);
    if (out->n_tokens == 0)
        die_user(EXIT_DATA, "%s: no %s", path,
                 out->n ? "tokens, all records are empty" : "records");
    char *problem = pack_check_letters(path, out->report.composition, o.alphabet, &out->report);
    if (problem) die_user(EXIT_DATA, "%s", problem);
    check_tokens(path, out->max_token, c);
    return out;
}

static int longest_name(const struct records *r) {
    size_t longest = 1;
    const char *name = r->names;
    for (int64_t i = 0; i < r->n; i++, name += strlen(name) + 1)
        if (strlen(name) > longest) longest = strlen(name);
    return (int)longest;
}

/* Rank 0's records into the corpus; `names` has room. */
static void take_records(struct corpus *c, const struct records *r, char *names) {
    const char *name = r->names;
    for (int64_t i = 0; i < r->n; i++, name += strlen(name) + 1) {
        c->length[i] = r->length[i];
        memcpy(names + i * c->name_bytes, name, strlen(name));
    }
    memcpy(c->map, r->tokens, (size_t)r->n_tokens);
}

struct corpus *sequences_read(const char *path, const struct config *config, const struct grid *g) {
    struct sizes z = {0};
    struct records *r = NULL;
    if (is_packed(path, g)) return open_packed(path, config);
    if (g->rank == 0) {
        r = parse(path, config);
        z = (struct sizes){r->n_tokens, r->n, longest_name(r), r->max_token};
    }
    user_agree();
    agree_bytes(g, &z, sizeof z);
    struct corpus *c = memory_alloc(sizeof *c);
    size_t n = (size_t)z.n_records, names_bytes = n * (size_t)z.name_bytes;
    char *names = memory_alloc(names_bytes);
    c->path = memory_string(path);
    c->token_bytes = 1;
    c->max_token = z.max_token;
    c->alphabet = config->dataset.alphabet;
    c->n_tokens = z.n_tokens, c->n_records = z.n_records;
    c->eos = TOKEN_EOS;
    c->name_bytes = z.name_bytes;
    c->offset = memory_alloc_array(n, sizeof *c->offset);
    c->length = memory_alloc_array(n, sizeof *c->length);
    c->map = memory_alloc((size_t)z.n_tokens);
    if (r) {
        take_records(c, r, names);
        records_free(r);
    }
    agree_bytes(g, c->length, z.n_records * (int64_t)sizeof *c->length);
    agree_bytes(g, names, (int64_t)names_bytes);
    agree_bytes(g, c->map, z.n_tokens);
    for (size_t i = 1; i < n; i++) c->offset[i] = c->offset[i - 1] + c->length[i - 1];
    c->names = names;
    c->tokens = c->map;
    return c;
}

void sequences_free(struct corpus *c) {
    if (c->map_bytes) { /* a mapped file */
        corpus_close(c);
        return;
    }
    memory_free((void *)(uintptr_t)c->names);
    memory_free(c->path);
    memory_free(c->offset);
    memory_free(c->length);
    memory_free(c->map);
    memory_free(c);
}
