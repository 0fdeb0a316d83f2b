#include "config.h"
#include "info.h"
#include "base/die.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/compare.h"
#include "checkpoint/contents.h"
#include "checkpoint/folder.h"
#include "checkpoint/inspect.h"
#include "config/config.h"
#include "data/corpus.h"
#include "metrics/metrics.h"
#include "score/score_info.h"
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "regulon info FILE...            what a deck, a packed corpus, a metrics file, a run folder or "
    "a checkpoint holds\n"
    "regulon info --verify CKPT...   hashes the files of checkpoints again; exit code 65 when one "
    "is damaged\n"
    "regulon info --diff CKPT CKPT   compares two checkpoints, of any grids: exit code 0 equal, 1 "
    "different\n"
    "regulon info --folder DECK [key=value ...]  where `regulon train` with these words would "
    "write\n"
    "A checkpoint is a folder step_N, or its index.h5 or a shard; --verify also takes a run "
    "folder. "
    "--json prints\n"
    "it as JSON. One process is enough.\n";

/* Words of the command line. */
struct request {
    struct inspection how;
    int diff, n;
    char **names; /* [n] */
};

/* What lies in a run folder: metrics.h5 and checkpoints. 0: it has neither. */
static int info_run(const char *name) {
    char *metrics = file_join(name, "metrics.h5");
    int n, has_metrics = file_exists(metrics);
    memory_free(checkpoint_list(name, &n));
    if (has_metrics) metrics_info(metrics, stdout);
    inspect_run(name, stdout);
    memory_free(metrics);
    return has_metrics || n > 0;
}

/* All checkpoints of a run folder, newest first; *code as inspect_checkpoint. 0: it has none. */
static int info_checkpoints(const char *name, struct inspection how, int *code) {
    int n;
    int64_t *steps = checkpoint_list(name, &n);
    for (int i = 0; i < n; i++) {
        char *folder = checkpoint_folder(name, steps[i]);
        if (inspect_checkpoint(folder, how, stdout) != EXIT_FINISHED) *code = EXIT_DATA;
        memory_free(folder);
    }
    memory_free(steps);
    return n > 0;
}

static void info_file(const char *path) {
    char *format = file_exists(path) ? h5_read_format(path) : NULL;
    if (!format)
        config_info(path, stdout);
    else if (strcmp(format, "regulon metrics") == 0)
        metrics_info(path, stdout);
    else if (strcmp(format, "regulon corpus") == 0)
        corpus_info(path, stdout);
    else if (score_info_knows(format))
        score_info(path, format, stdout);
    else
        die_user(EXIT_DATA, "%s: a file of format '%s', which this version does not know", path,
                 format);
    memory_free(format);
}

static noreturn void refuse_checkpoint(const char *name) {
    die_user(EXIT_DATA, "%s: not a checkpoint: a folder step_N, its index.h5 or a shard", name);
}

static int info_one(const char *name, const struct request *r) {
    int code = EXIT_FINISHED, only_checkpoints = r->how.verify || r->how.json;
    char *folder = contents_folder(name);
    if (folder)
        code = inspect_checkpoint(folder, r->how, stdout);
    else if (only_checkpoints && !info_checkpoints(name, r->how, &code))
        refuse_checkpoint(name);
    else if (!only_checkpoints && !info_run(name))
        info_file(name);
    memory_free(folder);
    return code;
}

static int info_diff(const struct request *r) {
    if (r->n != 2) die_user(EXIT_USAGE, "info: --diff takes two checkpoints, not %d", r->n);
    enum { PIECE_BYTES = 16 << 20 };
    char *folders[2];
    for (int i = 0; i < 2; i++)
        if (!(folders[i] = contents_folder(r->names[i]))) refuse_checkpoint(r->names[i]);
    int code = compare_checkpoints(folders[0], folders[1], PIECE_BYTES, stdout);
    for (int i = 0; i < 2; i++) memory_free(folders[i]);
    return code;
}

static void read_option(struct request *r, const char *word) {
    if (strcmp(word, "--verify") == 0)
        r->how.verify = 1;
    else if (strcmp(word, "--json") == 0)
        r->how.json = 1;
    else if (strcmp(word, "--diff") == 0)
        r->diff = 1;
    else
        die_user(EXIT_USAGE, "info: unknown option '%s'; see regulon info --help", word);
}

/* On rank 0; the exit code. */
static int info(int argc, char **argv) {
    struct request r = {.n = 0};
    int code = EXIT_FINISHED;
    r.names = memory_alloc_array((size_t)argc + 1, sizeof *r.names);
    for (int i = 0; i < argc; i++)
        if (argv[i][0] == '-')
            read_option(&r, argv[i]);
        else
            r.names[r.n++] = argv[i];
    if (r.n == 0)
        die_user(EXIT_USAGE,
                 "info: which file? regulon info DECK|CORPUS|METRICS|RUN|CHECKPOINT ...");
    if (r.diff)
        code = info_diff(&r);
    else
        for (int i = 0; i < r.n; i++) {
            int one = info_one(r.names[i], &r);
            if (one != EXIT_FINISHED) code = one;
        }
    memory_free(r.names);
    return code;
}

/* The run folder that `regulon train` would use with these words: what the job scripts ask. */
static void print_folder(int argc, char **argv) {
    if (argc == 0)
        die_user(EXIT_USAGE, "info: which deck? regulon info --folder DECK [key=value ...]");
    struct config *c = config_load(argv[0], argv + 1, argc - 1);
    printf("%s\n", c->checkpoint.ckpt_dir);
    config_free(c);
}

int info_main(int argc, char **argv) {
    int code = EXIT_FINISHED;
    if (argc > 0 && strcmp(argv[0], "--help") == 0) {
        if (log_rank() == 0) fputs(help, stdout);
        return code;
    }
    if (log_rank() == 0 && argc > 0 && strcmp(argv[0], "--folder") == 0)
        print_folder(argc - 1, argv + 1);
    else if (log_rank() == 0)
        code = info(argc, argv);
    user_agree();
    MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return code;
}
