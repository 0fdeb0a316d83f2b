#include "config.h"
#include "generate/prompts.h"
#include "base/die.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/fasta.h"
#include "data/records.h"
#include "data/tokens.h"
#include <mpi.h>
#include <string.h>

static int is_letter(int c, enum alphabet_kind alphabet) {
    if (alphabet == ALPHABET_BYTES) return c >= TOKEN_FIRST_TEXT;
    int upper = c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c;
    return c && (strchr(tokens_usual_letters(alphabet), upper) || strchr("*-.", c));
}

/* A prompt must be of the alphabet, of tokens that the model has, and leave room in its context. */
static void check(const struct settings *o, const struct config *c, const char *name,
                  const unsigned char *text, int64_t n, int head) {
    char *what = o->prompts  ? memory_format("%s: record '%s'", o->prompts, name)
                 : o->prompt ? memory_string("generate: --prompt")
                             : memory_string("generate: no prompt");
    int code = o->prompts ? EXIT_DATA : EXIT_USAGE;
    enum alphabet_kind alphabet = (enum alphabet_kind)c->dataset.alphabet;
    int64_t most = c->dataset.max_seq_length - 1 - head;
    char seen[16];
    if (n + head == 0)
        die_user(code, "%s: a sequence begins with %s", what,
                 o->no_bos ? "a prompt where --no-bos is given"
                           : "a prompt where the model was trained without BOS (dataset.bos_eos)");
    if (n > most)
        die_user(code,
                 "%s: %lld letters; the model's context has room for %lld before the first new one "
                 "(dataset.max_seq_length %lld): give the last of them",
                 what, (long long)n, (long long)most, (long long)c->dataset.max_seq_length);
    for (int64_t i = 0; i < n; i++) {
        if (!is_letter(text[i], alphabet))
            die_user(code, "%s: %s at %lld is no letter of %s", what, reader_show(seen, text[i]),
                     (long long)i + 1, tokens_alphabet_name(alphabet));
        if (text[i] >= c->model.vocab_size)
            die_user(code, "%s: %s at %lld does not fit model.vocab_size %lld", what,
                     reader_show(seen, text[i]), (long long)i + 1, (long long)c->model.vocab_size);
    }
    memory_free(what);
}

/* On rank 0; the caller frees it. */
static struct records *read_records(const struct settings *o, const struct config *c, int head) {
    struct records *r = records_new(1, -1, NULL);
    if (o->prompts) {
        struct reader *in = reader_open(o->prompts, READER_TEXT);
        fasta_parse(in, (enum alphabet_kind)c->dataset.alphabet, r);
        if (reader_error(in)) die_user(reader_error_code(in), "%s", reader_error(in));
        if (r->n == 0) die_user(EXIT_DATA, "%s: no record to go on from", o->prompts);
        reader_close(in);
    } else {
        const char *text = o->prompt ? o->prompt : "", *name = o->prompt ? "prompt" : "sequence";
        memcpy(records_room(r, strlen(text)), text, strlen(text));
        records_add(r, strlen(text));
        records_end(r, name, strlen(name));
    }
    if (r->n > INT32_MAX || r->n_tokens > INT32_MAX / 2 || r->names_bytes > INT32_MAX)
        die_user(EXIT_DATA, "%s: more prompts than fit; split the file", o->prompts);
    const char *name = r->names;
    const unsigned char *tokens = r->tokens;
    for (int64_t i = 0; i < r->n; i++) {
        check(o, c, name, tokens, r->length[i], head);
        name += strlen(name) + 1;
        tokens += r->length[i];
    }
    return r;
}

void prompts_open(struct prompts *p, const struct settings *o, const struct config *c) {
    struct records *r = NULL;
    int64_t sizes[3] = {0}; /* prompts, tokens, bytes of names */
    int head = !o->no_bos && c->dataset.bos_eos != BOS_NONE;
    if (log_rank() == 0) {
        r = read_records(o, c, head);
        sizes[0] = r->n, sizes[1] = r->n_tokens, sizes[2] = (int64_t)r->names_bytes;
    }
    user_agree();
    MPI_Bcast(sizes, 3, MPI_INT64_T, 0, MPI_COMM_WORLD);
    unsigned char *text = memory_alloc((size_t)sizes[1]);
    int64_t *length = memory_alloc_array((size_t)sizes[0], sizeof *length);
    p->n = (int)sizes[0], p->head = head;
    p->name_text = memory_alloc((size_t)sizes[2]);
    if (r) {
        memcpy(text, r->tokens, (size_t)sizes[1]);
        memcpy(length, r->length, (size_t)sizes[0] * sizeof *length);
        memcpy(p->name_text, r->names, (size_t)sizes[2]);
        records_free(r);
    }
    MPI_Bcast(text, (int)sizes[1], MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Bcast(length, (int)sizes[0], MPI_INT64_T, 0, MPI_COMM_WORLD);
    MPI_Bcast(p->name_text, (int)sizes[2], MPI_BYTE, 0, MPI_COMM_WORLD);
    p->list = memory_alloc_array((size_t)p->n, sizeof *p->list);
    p->names = memory_alloc_array((size_t)p->n, sizeof *p->names);
    p->tokens = memory_alloc_array((size_t)(sizes[1] + p->n), sizeof *p->tokens);
    int32_t *to = p->tokens;
    const unsigned char *from = text;
    char *name = p->name_text;
    for (int i = 0; i < p->n; i++, name += strlen(name) + 1) {
        p->names[i] = name;
        p->list[i] = (struct prompt){.tokens = to, .n = (int)length[i] + head};
        if (head) *to++ = TOKEN_BOS;
        for (int64_t k = 0; k < length[i]; k++) *to++ = *from++;
    }
    memory_free(text);
    memory_free(length);
}

void prompts_close(struct prompts *p) {
    memory_free(p->list);
    memory_free(p->names);
    memory_free(p->tokens);
    memory_free(p->name_text);
}
