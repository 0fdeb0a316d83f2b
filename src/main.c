/* regulon VERB ...: finds the verb and runs it. */
#include "config.h"
#include "eval.h"
#include "export.h"
#include "import.h"
#include "base/die.h"
#include "base/h5.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/revision.h"
#include "base/text.h"
#include "bench/bench.h"
#include "data/pack.h"
#include "generate.h"
#include "grid/grid.h"
#include "info.h"
#include "plan/plan.h"
#include "score/embed.h"
#include "score/score.h"
#include "selftest.h"
#include "tools.h"
#include "train/train.h"
#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* A verb gets the words after its name and returns the exit code. All run with MPI initialised, on
 * every rank. */
static const struct verb {
    const char *name, *what;
    int (*run)(int argc, char **argv);
} verbs[] = {
    {"train", "train the model that a deck describes", train_main},
    {"eval", "loss of a trained model on held-out data", eval_main},
    {"generate", "new sequences from a trained model", generate_main},
    {"import", "a Hugging Face folder as a checkpoint", import_main},
    {"export", "a trained model as a Hugging Face folder", export_main},
    {"score", "log-likelihood of sequences, bases or variants under a trained model", score_main},
    {"embed", "hidden states of a trained model for sequences", embed_main},
    {"pack", "FASTA, FASTQ, JSONL or token files to a packed corpus", pack_main},
    {"info", "what a deck, corpus, metrics file, run or checkpoint holds", info_main},
    {"plan", "memory, FLOPs and bytes that a deck would need; does it fit?", plan_main},
    {"bench", "how fast and how right the operations of a step are here", bench_main},
    {"selftest", "are this machine and this folder fit for a run?", selftest_main},
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static void print_usage(FILE *out) {
    fprintf(out, "usage: regulon VERB [...]; regulon VERB --help says more\n");
    for (int i = 0; i < N_VERBS; i++) fprintf(out, "  %-16s %s\n", verbs[i].name, verbs[i].what);
    for (size_t i = 0; i < n_tools; i++) fprintf(out, "  %-16s %s\n", tools[i].name, tools[i].what);
    fprintf(out, "  --version        version and revision\n");
}

static const struct verb *find_verb(const char *name) {
    for (int i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
    return NULL;
}

/* Ends the program for a word that is no verb. On rank 0. */
static void refuse_verb(const char *name) {
    const char **names = memory_alloc_array(N_VERBS + n_tools, sizeof *names);
    for (size_t i = 0; i < N_VERBS + n_tools; i++)
        names[i] = i < N_VERBS ? verbs[i].name : tools[i - N_VERBS].name;
    const char *nearest = text_nearest(name, names, N_VERBS + n_tools);
    memory_free(names);
    if (nearest) die_user(EXIT_USAGE, "'%s' is not a verb; did you mean '%s'?", name, nearest);
    die_user(EXIT_USAGE, "'%s' is not a verb; regulon --help names them", name);
}

/* MPI's calls stand bare: what fails ends here. */
static void mpi_failed(MPI_Comm *comm, int *code, ...) {
    char text[MPI_MAX_ERROR_STRING];
    int n;
    (void)comm;
    MPI_Error_string(*code, text, &n);
    die("MPI: %s", text);
}

static void handle_mpi_errors(void) {
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(mpi_failed, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler); /* communicators made from it inherit it */
    MPI_Errhandler_free(&handler);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--version") == 0)
        return printf("%s %s\n", PACKAGE_STRING, revision_name()) < 0;
    if (strcmp(name, "--help") == 0)
        return print_usage(stdout), argc > 1 ? EXIT_FINISHED : EXIT_USAGE;
    const struct verb *verb = find_verb(name);
    if (!verb) tools_run(name, argv);
    int level, rank, n_ranks;
    h5_open_library();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    handle_mpi_errors();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    log_open(rank);
    grid_guard_launch(n_ranks);
    if (!verb && rank == 0) refuse_verb(name);
    user_agree();
#ifdef REGULON_DEBUG
    log_set_debug(1);
#endif
    int code = verb->run(argc - 2, argv + 2);
    if (memory_live() != 0)
        log_debug("main", "%lld blocks of memory are left", (long long)memory_live());
    leave(code);
}
