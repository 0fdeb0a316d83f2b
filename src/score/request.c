#include "config.h"
#include "score/request.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include <string.h>
#include <sys/stat.h>

enum option { OUTPUT, FORMAT, PER_BASE, POOL, LAYER, STRAND, WINDOW, STRIDE, VARIANTS, HELP };

static const struct {
    const char *name, *value;
    int verbs;
    const char *what;
} options[] = {
    [OUTPUT] = {"-o", "FILE", VERB_SCORE | VERB_EMBED,
                "where to write; it appears when it is whole"},
    [FORMAT] = {"--format", "NAME", VERB_SCORE,
                "tsv, jsonl or h5; default: as FILE ends, else tsv. h5 needs -o"},
    [PER_BASE] = {"--per-base", NULL, VERB_SCORE, "the log-likelihood of every base"},
    [POOL] = {"--pool", "NAME", VERB_EMBED,
              "mean (default): of a record's bases; none: every base on its own"},
    [LAYER] = {"--layer", "N", VERB_EMBED,
               "after N layers, 0: the embedding; default: all, and the last norm"},
    [STRAND] = {"--strand", "NAME", VERB_SCORE,
                "forward (default), reverse (complement), or mean: of both, base by base"},
    [WINDOW] = {"--window", "N", VERB_SCORE | VERB_EMBED,
                "tokens that the model sees at once; default: dataset.max_seq_length"},
    [STRIDE] = {"--stride", "N", VERB_SCORE | VERB_EMBED,
                "tokens from one window to the next: behind the first one every token has\n"
                "                    window - stride before it at least; default: half a window"},
    [VARIANTS] = {"--variants", "VCF", VERB_SCORE,
                  "instead of records: log-likelihood of ALT less that of REF, in context"},
    [HELP] = {"--help", NULL, VERB_SCORE | VERB_EMBED, "print this text"},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static const char *verb_name(enum request_verb verb) {
    return verb == VERB_SCORE ? "score" : "embed";
}

static void print_help(enum request_verb verb) {
    printf("usage: regulon %s MODEL FILE %s[option ...] [key=value ...]\n\n", verb_name(verb),
           verb == VERB_EMBED ? "-o OUT.h5 " : "");
    fputs(verb == VERB_SCORE ? "Log-likelihoods of the records of FILE under MODEL, in nats.\n"
                             : "Hidden states of the bases of FILE in MODEL, to HDF5.\n",
          stdout);
    fputs("MODEL: a run folder, one of its step folders, or a Hugging Face folder.\n"
          "FILE: FASTA, FASTQ or JSON lines, plain or gzip, or a packed corpus.\n"
          "Keys override the model's own, such as dataset.bos_eos=none or "
          "dataset.token_micro_batch_size=8192.\n\n",
          stdout);
    for (int i = 0; i < N_OPTIONS; i++)
        if (options[i].verbs & (int)verb)
            printf("  %-11s %-5s %s\n", options[i].name, options[i].value ? options[i].value : "",
                   options[i].what);
}

/* The place of a word in a list that ends with NULL, else die_user. */
static int choose(const char *verb, const char *option, const char *word, const char *const *list) {
    for (int i = 0; list[i]; i++)
        if (strcmp(list[i], word) == 0) return i;
    if (log_rank() == 0)
        die_user(EXIT_USAGE, "%s: %s: '%s' is none of %s, %s%s%s", verb, option, word, list[0],
                 list[1], list[2] ? ", " : "", list[2] ? list[2] : "");
    return 0;
}

static int64_t count(const char *verb, const char *option, const char *word, int64_t least) {
    enum { MOST = 16777216 };
    int64_t n = least;
    if ((!text_to_int(word, &n) || n < least || n > MOST) && log_rank() == 0)
        die_user(EXIT_USAGE, "%s: %s: '%s' is not a whole number from %lld to %d", verb, option,
                 word, (long long)least, MOST);
    return n;
}

static void set(struct request *o, const char *verb, int option, const char *value) {
    static const char *const formats[] = {"tsv", "jsonl", "h5", NULL},
                             *const pools[] = {"mean", "none", NULL},
                             *const strands[] = {"forward", "reverse", "mean", NULL};
    const char *name = options[option].name;
    switch (option) {
    case OUTPUT:
        o->output = value;
        break;
    case FORMAT:
        o->format = (enum score_format)choose(verb, name, value, formats);
        break;
    case PER_BASE:
        o->per_base = 1;
        break;
    case POOL:
        o->per_base = choose(verb, name, value, pools);
        break;
    case LAYER:
        o->layer = count(verb, name, value, 0);
        break;
    case STRAND:
        o->strand = (enum strand_kind)choose(verb, name, value, strands);
        break;
    case WINDOW:
        o->window = count(verb, name, value, 2);
        break;
    case STRIDE:
        o->stride = count(verb, name, value, 1);
        break;
    case VARIANTS:
        o->variants = value;
        break;
    case HELP:
        o->help = 1;
        break;
    }
}

/* The option that a word is, as --name or --name=value; -1: none. */
static int find(const char *word, enum request_verb verb, const char **value) {
    *value = NULL;
    for (int i = 0; i < N_OPTIONS; i++) {
        size_t n = strlen(options[i].name);
        if (strncmp(word, options[i].name, n) != 0 || !(options[i].verbs & (int)verb)) continue;
        if (word[n] == '=' && options[i].value) *value = word + n + 1;
        if (word[n] == 0 || *value) return i;
    }
    return -1;
}

/* What must not be: on rank 0. */
static void check(const struct request *o, enum request_verb verb, const char *seen) {
    const char *name = verb_name(verb);
    struct stat in, out;
    if (!o->model || !o->file)
        die_user(EXIT_USAGE, "%s: which %s? regulon %s MODEL FILE%s [option ...] [key=value ...]",
                 name, o->model ? "file" : "model", name, verb == VERB_EMBED ? " -o OUT.h5" : "");
    if (verb == VERB_EMBED && !o->output)
        die_user(EXIT_USAGE, "embed: -o FILE is missing: the HDF5 file to write");
    if (verb == VERB_SCORE && o->format == FORMAT_H5 && !o->output)
        die_user(EXIT_USAGE, "score: --format h5 needs -o FILE");
    if (o->variants && o->format == FORMAT_H5)
        die_user(EXIT_USAGE, "score: variants are written as tsv or jsonl");
    if (o->variants && seen[PER_BASE])
        die_user(EXIT_USAGE, "score: --variants and --per-base do not go together");
    if (o->variants && seen[STRIDE])
        die_user(EXIT_USAGE, "score: a variant is scored in one window: no --stride");
    const char *const inputs[] = {o->file, o->variants};
    for (int i = 0; o->output && i < 2; i++) {
        if (stat(o->output, &out) != 0) break;
        if (S_ISDIR(out.st_mode)) die_user(EXIT_USAGE, "%s: -o %s is a folder", name, o->output);
        if (inputs[i] && stat(inputs[i], &in) == 0 && in.st_ino == out.st_ino &&
            in.st_dev == out.st_dev)
            die_user(EXIT_USAGE, "%s: -o %s is a file to read", name, o->output);
    }
}

/* On every rank. */
static void read_words(struct request *o, enum request_verb verb, int argc, char **argv) {
    const char *value, *name = verb_name(verb);
    char seen[N_OPTIONS] = {0};
    *o = (struct request){.layer = -1,
                          .words = memory_alloc_array((size_t)argc + 1, sizeof *o->words)};
    for (int i = 0; i < argc && !o->help; i++) {
        int option = find(argv[i], verb, &value);
        if (option < 0 && argv[i][0] == '-' && argv[i][1]) {
            if (log_rank() == 0)
                die_user(EXIT_USAGE, "%s: unknown option '%s'; see regulon %s --help", name,
                         argv[i], name);
            continue;
        }
        if (option < 0) {
            if (!o->model)
                o->model = argv[i];
            else if (!o->file)
                o->file = argv[i];
            else
                o->words[o->n++] = argv[i];
            continue;
        }
        if (options[option].value && !value && i + 1 < argc) value = argv[++i];
        if (options[option].value && !value && log_rank() == 0)
            die_user(EXIT_USAGE, "%s: %s needs a value: %s", name, options[option].name,
                     options[option].value);
        if (seen[option] && log_rank() == 0)
            die_user(EXIT_USAGE, "%s: %s is given twice", name, options[option].name);
        seen[option] = 1;
        if (value || !options[option].value) set(o, name, option, value);
    }
    if (o->output && !seen[FORMAT])
        o->format = file_has_suffix(o->output, ".h5")      ? FORMAT_H5
                    : file_has_suffix(o->output, ".jsonl") ? FORMAT_JSONL
                                                           : FORMAT_TSV;
    if (!o->help && log_rank() == 0) check(o, verb, seen);
    user_agree();
}

int request_run(enum request_verb verb, int argc, char **argv,
                void (*run)(struct trained *t, const struct request *o)) {
    struct request o;
    struct trained t;
    read_words(&o, verb, argc, argv);
    if (o.help && log_rank() == 0) print_help(verb);
    if (!o.help) {
        trained_find(&t, o.model, o.words, o.n);
        trained_open(&t, o.words, o.n, /*spread=*/0);
        run(&t, &o);
        trained_close(&t);
    }
    memory_free(o.words);
    return EXIT_FINISHED;
}
