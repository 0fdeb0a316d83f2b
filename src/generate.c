#include "config.h"
#include "generate.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/loader.h"
#include "data/tokens.h"
#include "generate/generator.h"
#include "generate/settings.h"
#include "generate/prompts.h"
#include "grid/watchdog.h"
#include "train/trained.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 80 }; /* letters of a line of FASTA */

/* The letters that may be chosen, ascending; returns how many: a deck is refused whose vocabulary
 * does not hold its alphabet's. With `bytes`, of which all are
 * plain, what FASTA holds: not what a line cannot begin with. */
static int list_letters(const struct config *c, int all, int32_t letters[256]) {
    enum alphabet_kind alphabet = (enum alphabet_kind)c->dataset.alphabet;
    const char *plain = tokens_letters(alphabet);
    int n = 0, bytes = alphabet == ALPHABET_BYTES;
    for (int x = 33; x < 256 && x < c->model.vocab_size; x++) {
        int letter = (x | 32) >= 'a' && (x | 32) <= 'z';
        if (bytes  ? x != 127 && x != '>' && x != ';'
            : !all ? strchr(plain, x) != NULL
                   : letter || strchr("*-.", x))
            letters[n++] = x;
    }
    return n;
}

/* A file that cannot be written is better refused before the work. Rank 0. */
static void check_output(const char *path) {
    if (file_is_special(path)) die_user(EXIT_USAGE, "%s: not a plain file", path);
    char *folder = file_folder(path);
    if (access(folder, W_OK) != 0) die_user(EXIT_IO, "%s: %s", folder, strerror(errno));
    memory_free(folder);
}

static void print_name(FILE *out, const struct settings *o, const char *prompt, int n_prompt,
                       int64_t number) {
    char real[32];
    const struct sampling *s = &o->sampling;
    fprintf(out, ">%s_%lld", prompt, (long long)number);
    if (o->prompt || o->prompts) fprintf(out, " prompt=%s prompt_letters=%d", prompt, n_prompt);
    fprintf(out, " number=%lld letters=%s", (long long)number, o->all_letters ? "all" : "plain");
    if (s->greedy) {
        fprintf(out, " greedy\n");
        return;
    }
    fprintf(out, " temperature=%s", text_real(real, sizeof real, s->temperature));
    if (s->top_k) fprintf(out, " top_k=%lld", (long long)s->top_k);
    if (s->top_p < 1) fprintf(out, " top_p=%s", text_real(real, sizeof real, s->top_p));
    fprintf(out, " seed=%llu\n", (unsigned long long)o->seed);
}

/* text[n] in lines; `column` letters are in the current one already. Returns what is in the last.
 */
static int64_t print_letters(FILE *out, const unsigned char *text, int64_t n, int64_t column) {
    for (int64_t i = 0; i < n; i++) {
        if (column == LINE) putc('\n', out), column = 0;
        putc(text[i], out);
        column++;
    }
    return column;
}

static void print_sequence(FILE *out, const struct settings *o, const struct prompts *p,
                           int64_t index, const unsigned char *letters) {
    int which = (int)(index / o->count);
    const struct prompt *prompt = &p->list[which];
    int64_t column = 0;
    print_name(out, o, p->names[which], prompt->n - p->head, index % o->count + 1);
    for (int i = p->head; o->with_prompt && i < prompt->n; i++) {
        unsigned char c = (unsigned char)prompt->tokens[i];
        column = print_letters(out, &c, 1, column);
    }
    print_letters(out, letters, o->length, column);
    putc('\n', out);
}

/* All sequences in order, from the ranks that made them, on rank 0 into `out`. */
static void print_all(FILE *out, const struct settings *o, const struct prompts *p,
                      const struct grid *g, const unsigned char *letters) {
    enum { TAG = 7 };
    unsigned char *room = g->rank == 0 ? memory_alloc((size_t)o->length) : NULL;
    for (int64_t i = 0; i < p->n * o->count; i++) {
        int owner = (int)(i % g->n_ranks);
        unsigned char *own =
            (unsigned char *)(uintptr_t)letters + i / g->n_ranks * o->length * (owner == g->rank);
        if (owner != 0 && g->rank == 0)
            MPI_Recv(room, (int)o->length, MPI_BYTE, owner, TAG, g->world, MPI_STATUS_IGNORE);
        if (owner != 0 && g->rank == owner)
            MPI_Send(own, (int)o->length, MPI_BYTE, 0, TAG, g->world);
        if (g->rank == 0) print_sequence(out, o, p, i, owner == 0 ? own : room);
    }
    memory_free(room);
}

/* Writes them to the file that was asked for, whole or not at all, or to stdout, which MPI may have
 * made unbuffered. */
static void write_all(const struct settings *o, const struct prompts *p, const struct grid *g,
                      const unsigned char *letters) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = g->rank == 0 ? open_memstream(&text, &n) : NULL;
    if (g->rank == 0 && !out) die("out of memory: %s", strerror(errno));
    print_all(out, o, p, g, letters);
    if (g->rank == 0) {
        if (fclose(out) != 0) die("out of memory: %s", strerror(errno));
        int written = o->output ? file_write_atomic(o->output, text, n)
                                : fwrite(text, 1, n, stdout) == n && fflush(stdout) == 0;
        if (!written)
            die_user(EXIT_IO, "cannot write %s: %s", o->output ? o->output : "to stdout",
                     strerror(errno));
    }
    user_agree();
    free(text);
}

static void say_speed(const struct settings *o, const struct prompts *p, double seconds) {
    char letters[32], rate[32];
    double n = (double)p->n * (double)o->count * (double)o->length;
    log_info("generate", "%s letters in %.1f s: %s letters/s",
             text_count(letters, sizeof letters, n), seconds,
             text_count(rate, sizeof rate, n / seconds));
}

/* Makes the sequences and writes them. */
static void generate(struct trained *model, const struct settings *o, const struct prompts *p) {
    const struct config *c = model->config;
    int32_t letters[256];
    int context = (int)c->dataset.max_seq_length, capacity = loader_capacity(c);
    struct task t = {.prompts = p->list,
                     .n_prompts = p->n,
                     .count = (int)o->count,
                     .length = o->length,
                     .context = context,
                     .bos = c->dataset.bos_eos == BOS_WINDOW && !o->no_bos ? TOKEN_BOS : -1,
                     .letters = letters,
                     .n_letters = list_letters(c, o->all_letters, letters),
                     .seed = o->seed,
                     .sampling = o->sampling};
    if (log_rank() == 0 && t.n_letters == 0)
        die_user(EXIT_CONFIG,
                 "generate: a vocabulary of %lld tokens has no letter of the alphabet in it",
                 (long long)c->model.vocab_size);
    if (log_rank() == 0 && o->output) check_output(o->output);
    user_agree();
    trained_open(model, o->words, o->n_words, /*spread=*/1);
    trained_load(model, capacity > context ? capacity : context);
    const struct grid *g = &model->grid;
    if (!model->be->attention_kept)
        log_info("generate",
                 "%s keeps no keys and values: each letter takes a pass over what is before it",
                 model->be->name);
    watchdog_part(WATCHDOG_GENERATION, 0);
    unsigned char *made =
        memory_alloc_array((size_t)generator_share(&t, g, g->rank), (size_t)t.length);
    double start = log_seconds();
    int finite = generator_run(model->model, &t, made);
    if (!finite && g->rank == 0)
        die_user(EXIT_NONFINITE, "%s: its logits are not finite", model->weights);
    user_agree();
    say_speed(o, p, log_seconds() - start);
    write_all(o, p, g, made);
    memory_free(made);
}

int generate_main(int argc, char **argv) {
    struct settings o;
    struct prompts p;
    char *problem = settings_read(&o, argc, argv);
    if (log_rank() == 0 && problem) die_user(EXIT_USAGE, "generate: %s", problem);
    if (log_rank() == 0 && o.help) fputs(settings_help, stdout);
    user_agree();
    if (!o.help) {
        struct trained t;
        trained_find(&t, o.model, o.words, o.n_words);
        prompts_open(&p, &o, t.config);
        generate(&t, &o, &p);
        prompts_close(&p);
        trained_close(&t);
    }
    memory_free(problem);
    memory_free(o.words);
    return EXIT_FINISHED;
}
