#include "config.h"
#include "plan/plan.h"
#include "backend/cuda_sizes.h"
#include "base/die.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/check.h"
#include "data/loader.h"
#include "model/shape.h"
#include "plan/figures.h"
#include "train/run.h"
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "regulon plan DECK [--ranks N] [--gpu-memory GB] [--json] [key=value ...]\n"
    "What a run of the deck on N ranks (dp_size x ep_size unless given) would need: memory of a "
    "rank by what it is for,\n"
    "FLOPs, bytes that a rank sends in a step, size of a checkpoint. Without a GPU, one process is "
    "enough. backend: auto\n"
    "means cuda here. Exit code 1 when it does not fit into GB (141; on the CPU a rank's share of "
    "this machine's memory);\n"
    "then the keys are named with which it would. GB are 10^9 bytes.\n";

/* The words of the command line. */
struct request {
    const char *deck;
    int64_t ranks;    /* 0: not given */
    double memory_gb; /* 0: not given */
    int json, n;
    char **words; /* [n] keys */
};

static const char *value_of(int argc, char **argv, int *i) {
    if (*i + 1 == argc) die_user(EXIT_USAGE, "plan: %s needs a number", argv[*i]);
    return argv[++*i];
}

static void read_words(struct request *r, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            r->json = 1;
        } else if (strcmp(argv[i], "--ranks") == 0) {
            const char *s = value_of(argc, argv, &i);
            if (!text_to_int(s, &r->ranks) || r->ranks < 1 || r->ranks > 1 << 20)
                die_user(EXIT_USAGE, "plan: --ranks: '%s' is no number of ranks", s);
        } else if (strcmp(argv[i], "--gpu-memory") == 0) {
            const char *s = value_of(argc, argv, &i);
            if (!text_to_real(s, &r->memory_gb) || r->memory_gb <= 0)
                die_user(EXIT_USAGE, "plan: --gpu-memory: '%s' is no number of GB", s);
        } else if (argv[i][0] == '-') {
            die_user(EXIT_USAGE, "plan: unknown option '%s'; see regulon plan --help", argv[i]);
        } else if (!r->deck) {
            r->deck = argv[i];
        } else {
            r->words[r->n++] = argv[i];
        }
    }
    if (!r->deck) die_user(EXIT_USAGE, "plan: which deck? regulon plan DECK --ranks N");
}

/* Bytes that a rank may use. On the CPU all ranks are on a machine like this one. */
static double limit_of(const struct plan *p, const struct request *r) {
    if (p->cuda) return (r->memory_gb ? r->memory_gb : 141) * 1e9;
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / p->ranks;
}

/* What `regulon train` refuses before it allocates. */
static void refuse_engines(const struct plan *p) {
    struct backend_options o = run_options(p->config);
    struct shape s = shape_of(p->config);
    struct work w = {.N = loader_capacity(p->config),
                     .D = s.D,
                     .F = s.F,
                     .E = s.E,
                     .attention = {.H = s.H, .G = s.G, .K = s.K, .window = s.window}};
    char why[200], *problem = check_engines(p->config, p->cuda);
    if (problem) die_user(EXIT_CONFIG, "%s", problem);
    if (!p->cuda) return;
    problem = cuda_work_refusal(&w);
    if (problem) die_user(EXIT_CONFIG, "%s", problem);
    if (o.attention == ATTENTION_CUDNN &&
        !cuda_cudnn_serves(&w, o.fp32 ? 4 : 2, &o, why, sizeof why))
        die_user(EXIT_CONFIG, "engine.attention: cudnn: %s", why);
    if (o.experts == EXPERTS_GROUPED &&
        !cuda_grouped_serves(&w, o.fp32 ? 4 : 2, &o, why, sizeof why))
        die_user(EXIT_CONFIG, "engine.experts: grouped: %s", why);
}

static void check_params(const struct plan *p) {
    struct grid g = {.n_ranks = p->ranks, .dp_size = p->dp_size, .ep_size = p->ep_size};
    run_check_params(p->config, &g);
}

static struct plan plan_of(const struct config *c, const struct request *r) {
    struct plan p = {.config = c, .cuda = c->backend != BACKEND_CPU};
    int64_t dp = c->parallelism.dp_size ? c->parallelism.dp_size : 1;
    int64_t ranks = r->ranks ? r->ranks : dp * c->parallelism.ep_size;
    if (!p.cuda && r->memory_gb)
        die_user(EXIT_USAGE, "plan: --gpu-memory: the deck asks for backend: cpu");
    char *problem = ranks > INT_MAX ? memory_string("too many ranks") : plan_grid(&p, (int)ranks);
    if (problem) die_user(EXIT_CONFIG, "%s", problem);
    p.limit = limit_of(&p, r);
    refuse_engines(&p);
    check_params(&p);
    return p;
}

/* On rank 0; the exit code. */
static int plan(int argc, char **argv) {
    struct request r = {.words = memory_alloc_array((size_t)argc + 1, sizeof *r.words)};
    read_words(&r, argc, argv);
    struct config *c = config_load(r.deck, r.words, r.n);
    struct plan p = plan_of(c, &r);
    int fits = r.json ? plan_print_json(&p, stdout) : plan_print(&p, stdout);
    memory_free(r.words);
    config_free(c);
    return fits ? EXIT_FINISHED : 1;
}

int plan_main(int argc, char **argv) {
    int code = EXIT_FINISHED;
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) {
            if (log_rank() == 0) fputs(help, stdout);
            return code;
        }
    if (log_rank() == 0) code = plan(argc, argv);
    user_agree();
    MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return code;
}
