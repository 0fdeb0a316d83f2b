#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/corpus.h"
#include "data/pack.h"
#include "data/tokens.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <mpi.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum option {
    OPTION_OUTPUT,
    OPTION_ALPHABET,
    OPTION_JSONL,
    OPTION_FIELD,
    OPTION_TOKENS,
    OPTION_EOS,
    OPTION_SHUFFLE,
    OPTION_JSON,
    OPTION_HELP
};

static const struct {
    const char *name, *value, *what;
} options[] = {
    [OPTION_OUTPUT] = {"-o", "FILE", "the corpus to write; required"},
    [OPTION_ALPHABET] = {"--alphabet", "NAME", "dna (default), rna, protein or bytes"},
    [OPTION_JSONL] = {"--jsonl", NULL,
                      "the files are JSON lines (otherwise told by their first byte)"},
    [OPTION_FIELD] = {"--field", "NAME",
                      "the field of a JSON line with its sequence; default text"},
    [OPTION_TOKENS] = {"--tokens", "TYPE",
                       "the files are ready tokens: u8, u16 or u32, little-endian"},
    [OPTION_EOS] = {"--eos", "ID", "the token that ends a record of ready tokens"},
    [OPTION_SHUFFLE] = {"--shuffle", "SEED", "put the records in a random order"},
    [OPTION_JSON] = {"--json", NULL, "print the report as JSON"},
    [OPTION_HELP] = {"--help", NULL, "print this text"},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

struct arguments {
    struct pack_options pack;
    const char *output;
    const char **files;
    int n, json, help;
};

static void print_help(void) {
    printf("usage: regulon pack FILE... -o CORPUS [option ...]\n\n"
           "Packs FASTA, FASTQ, JSON lines (plain, gzip or bgzip) or ready tokens into one corpus "
           "file (HDF5) that\n"
           "dataset.path takes. On several ranks (mpiexec) several files are read at once.\n\n");
    for (int i = 0; i < N_OPTIONS; i++)
        printf("  %-10s %-5s  %s\n", options[i].name, options[i].value ? options[i].value : "",
               options[i].what);
}

static void set_option(struct arguments *a, int option, const char *value) {
    int64_t number = 0;
    int alphabet;
    switch (option) {
    case OPTION_OUTPUT:
        a->output = value;
        break;
    case OPTION_ALPHABET:
        alphabet = tokens_alphabet(value);
        if (alphabet < 0)
            die_user(EXIT_USAGE, "pack: --alphabet: '%s' is none of dna, rna, protein, bytes",
                     value);
        a->pack.alphabet = (enum alphabet_kind)alphabet;
        break;
    case OPTION_JSONL:
        a->pack.jsonl = 1;
        break;
    case OPTION_FIELD:
        a->pack.text_field = value;
        break;
    case OPTION_TOKENS:
        a->pack.token_bytes = strcmp(value, "u8") == 0    ? 1
                              : strcmp(value, "u16") == 0 ? 2
                              : strcmp(value, "u32") == 0 ? 4
                                                          : 0;
        if (a->pack.token_bytes == 0)
            die_user(EXIT_USAGE, "pack: --tokens: '%s' is none of u8, u16, u32", value);
        break;
    case OPTION_EOS:
        if (!text_to_int(value, &number) || number < 0 || number > INT32_MAX)
            die_user(EXIT_USAGE, "pack: --eos: '%s' is no token", value);
        a->pack.eos = number;
        break;
    case OPTION_SHUFFLE:
        if (!text_to_uint(value, &a->pack.seed))
            die_user(EXIT_USAGE, "pack: --shuffle: '%s' is no seed", value);
        a->pack.shuffle = 1;
        break;
    case OPTION_JSON:
        a->json = 1;
        break;
    case OPTION_HELP:
        a->help = 1;
        break;
    }
}

/* The option that a word is, as --name or --name=value; -1: none. */
static int find_option(const char *word, const char **value) {
    *value = NULL;
    for (int i = 0; i < N_OPTIONS; i++) {
        size_t n = strlen(options[i].name);
        if (strncmp(word, options[i].name, n) != 0) continue;
        if (word[n] == '=' && options[i].value) *value = word + n + 1;
        if (word[n] == 0 || *value) return i;
    }
    return -1;
}

static void check_arguments(const struct arguments *a, const char *seen) {
    struct stat in, out;
    if (a->n == 0)
        die_user(EXIT_USAGE, "pack: no file given; usage: regulon pack FILE... -o CORPUS");
    if (a->output == NULL) die_user(EXIT_USAGE, "pack: -o FILE is missing: the corpus to write");
    if (a->n > CORPUS_MAX_SOURCES)
        die_user(EXIT_USAGE,
                 "pack: %d files: a corpus has at most %d sources; dataset.sources mixes several "
                 "corpora",
                 a->n, CORPUS_MAX_SOURCES);
    if (a->pack.token_bytes == 0 && seen[OPTION_EOS])
        die_user(EXIT_USAGE, "pack: --eos goes with --tokens");
    if (a->pack.token_bytes && !seen[OPTION_EOS])
        die_user(EXIT_USAGE, "pack: --tokens needs --eos ID");
    if (a->pack.token_bytes && (a->pack.jsonl || seen[OPTION_FIELD] || seen[OPTION_ALPHABET]))
        die_user(EXIT_USAGE, "pack: --tokens goes with none of --jsonl, --field, --alphabet");
    if (a->pack.token_bytes && a->pack.token_bytes < 4 && a->pack.eos >> 8 * a->pack.token_bytes)
        die_user(EXIT_USAGE, "pack: --eos: %lld does not fit into tokens of %d bits",
                 (long long)a->pack.eos, 8 * a->pack.token_bytes);
    if (stat(a->output, &out) == 0 && S_ISDIR(out.st_mode))
        die_user(EXIT_USAGE, "pack: -o %s is a folder", a->output);
    for (int i = 0; i < a->n; i++)
        if (stat(a->output, &out) == 0 && stat(a->files[i], &in) == 0 && in.st_ino == out.st_ino &&
            in.st_dev == out.st_dev)
            die_user(EXIT_USAGE, "pack: -o %s is one of the files to read", a->output);
}

static void parse_arguments(struct arguments *a, int argc, char **argv) {
    const char *value;
    char seen[N_OPTIONS] = {0};
    a->files = memory_alloc_array((size_t)argc + 1, sizeof *a->files);
    for (int i = 0; i < argc && !a->help; i++) {
        int option = find_option(argv[i], &value);
        if (option < 0 && argv[i][0] == '-' && argv[i][1])
            die_user(EXIT_USAGE, "pack: no option '%s'; regulon pack --help lists them", argv[i]);
        if (option < 0) {
            a->files[a->n++] = argv[i];
            continue;
        }
        if (options[option].value && !value && i + 1 < argc) value = argv[++i];
        if (options[option].value && !value)
            die_user(EXIT_USAGE, "pack: %s needs a value: %s", options[option].name,
                     options[option].value);
        if (seen[option]) die_user(EXIT_USAGE, "pack: %s is given twice", options[option].name);
        seen[option] = 1;
        set_option(a, option, value);
    }
    if (!a->help) check_arguments(a, seen);
}

static void print_some(const char *what, int64_t n) {
    if (n) printf("  %-22s %lld\n", what, (long long)n);
}

static void print_report(const struct arguments *a, const struct pack_report *r) {
    char in[32], rate[32];
    printf("%s: %lld records, %lld tokens, alphabet %s\n", a->output, (long long)r->records,
           (long long)r->tokens,
           tokens_alphabet_name(a->pack.token_bytes ? ALPHABET_BYTES : a->pack.alphabet));
    printf("  read %lld file%s, %s, in %.1f s: %s tokens/s\n", (long long)r->files,
           r->files > 1 ? "s" : "", text_bytes(in, sizeof in, (double)r->bytes_in), r->seconds,
           text_count(rate, sizeof rate, (double)r->tokens / (r->seconds > 0 ? r->seconds : 1)));
    print_some("empty records", r->empty_records);
    print_some("duplicate names", r->duplicate_names);
    print_some("renamed records", r->renamed_records);
    print_some("dropped spaces", r->dropped_spaces);
    print_some("blank lines", r->blank_lines);
    print_some("ragged lines", r->ragged_lines);
    print_some("CR or CRLF line ends", r->cr_line_ends);
    print_some("files without last end", r->unfinished_lines);
    print_some("lower-case letters", r->lowercase);
    print_some("other letters", r->other_letters);
}

static void print_json(const struct arguments *a, const struct pack_report *r) {
    json_t *root = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}",
        "output", a->output, "alphabet",
        tokens_alphabet_name(a->pack.token_bytes ? ALPHABET_BYTES : a->pack.alphabet), "files",
        (json_int_t)r->files, "records", (json_int_t)r->records, "tokens", (json_int_t)r->tokens,
        "empty_records", (json_int_t)r->empty_records, "duplicate_names",
        (json_int_t)r->duplicate_names, "renamed_records", (json_int_t)r->renamed_records,
        "dropped_spaces", (json_int_t)r->dropped_spaces, "blank_lines", (json_int_t)r->blank_lines,
        "ragged_lines", (json_int_t)r->ragged_lines, "cr_line_ends", (json_int_t)r->cr_line_ends,
        "unfinished_lines", (json_int_t)r->unfinished_lines, "lowercase", (json_int_t)r->lowercase,
        "other_letters", (json_int_t)r->other_letters, "bytes_in", (json_int_t)r->bytes_in,
        "seconds", r->seconds);
    if (root == NULL) die("the report is no JSON: is the output's name UTF-8?");
    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
}

/* Shares files among ranks: the largest first, each to the rank with the fewest bytes so far. On
 * rank 0, then sent. */
static int *share_files(const struct arguments *a, int n_ranks) {
    int *owner = memory_alloc_array((size_t)a->n, sizeof *owner);
    int64_t *load = memory_alloc_array((size_t)n_ranks, sizeof *load);
    int64_t *sizes = memory_alloc_array((size_t)a->n, sizeof *sizes);
    for (int i = 0; i < a->n; i++)
        owner[i] = -1, sizes[i] = log_rank() == 0 ? file_size(a->files[i]) : 0;
    for (int round = 0; log_rank() == 0 && round < a->n; round++) {
        int largest = -1, idle = 0;
        int64_t bytes = -1;
        for (int i = 0; i < a->n; i++)
            if (owner[i] < 0 && (largest < 0 || sizes[i] > bytes)) largest = i, bytes = sizes[i];
        for (int r = 1; r < n_ranks; r++)
            if (load[r] < load[idle]) idle = r;
        owner[largest] = idle;
        load[idle] += bytes + 1;
    }
    MPI_Bcast(owner, a->n, MPI_INT, 0, MPI_COMM_WORLD);
    memory_free(load);
    memory_free(sizes);
    return owner;
}

/* Parses this rank's files. If any rank finds bad data, every rank cleans up and leaves with the
 * code of the first bad file, whose finder's words rank 0 prints. */
static void parse_files(const struct arguments *a, const int *owner, int rank, long tag) {
    char *error = NULL;
    int mine = a->n, first, code = 0;
    for (int i = 0; i < a->n && !error; i++)
        if (owner[i] == rank &&
            (error = pack_file(a->files[i], i, a->output, tag, &a->pack, &code)))
            mine = i;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == a->n) return;
    int from = owner[first], bytes = error && from == rank ? (int)strlen(error) + 1 : 0;
    MPI_Bcast(&code, 1, MPI_INT, from, MPI_COMM_WORLD);
    MPI_Bcast(&bytes, 1, MPI_INT, from, MPI_COMM_WORLD);
    if (from != rank) memory_free(error), error = memory_alloc((size_t)bytes);
    MPI_Bcast(error, bytes, MPI_CHAR, from, MPI_COMM_WORLD);
    if (rank == 0) {
        pack_clean(a->n, a->output, tag);
        die_user(code, "%s", error);
    }
    user_agree();
}

/* Whether the corpus can be written is found out before hours of parsing. */
static void probe_output(const char *output, long tag) {
    char *temporary = memory_format("%s.%ld.tmp", output, tag);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) die_user(EXIT_IO, "%s: cannot be written: %s", output, strerror(errno));
    close(fd);
    unlink(temporary);
    memory_free(temporary);
}

int pack_main(int argc, char **argv) {
    struct arguments a = {.pack = {.alphabet = ALPHABET_DNA, .text_field = "text"}};
    struct pack_report report;
    int rank, n_ranks;
    long tag = (long)getpid();
    double start = log_seconds();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    MPI_Bcast(&tag, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        parse_arguments(&a, argc, argv);
        if (!a.help) probe_output(a.output, tag);
    }
    user_agree();
    if (rank != 0) parse_arguments(&a, argc, argv); /* the same words, known to be good */
    if (a.help) {
        if (rank == 0) print_help();
    } else {
        int *owner = share_files(&a, n_ranks);
        parse_files(&a, owner, rank, tag);
        if (rank == 0) pack_join(a.files, a.n, a.output, tag, &a.pack, &report);
        user_agree();
        report.seconds = log_seconds() - start;
        if (rank == 0) (a.json ? print_json : print_report)(&a, &report);
        memory_free(owner);
    }
    memory_free(a.files);
    return EXIT_FINISHED;
}
