#include "config.h"
#include "plan/plan.h"
#include "backend/cuda_sizes.h"
#include "base/die.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/check.h"
#include "data/loader.h"
#include "model/low.h"
#include "model/shape.h"
#include "plan/figures.h"
#include "plan/time.h"
#include "train/run.h"
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "regulon plan DECK [--ranks N] [--gpu-memory GB] [--json] [--tflops T] [--link GB/s]\n"
    "[--network GB/s] [--node-ranks N] [--capability X.Y] [key=value ...]\n"
    "What a run of the deck on N ranks (dp_size x ep_size unless given) would need: memory of a "
    "rank by what it is for,\n"
    "FLOPs, bytes that a rank sends in a step, size of a checkpoint. Without a GPU, one process is "
    "enough. backend: auto\n"
    "means cuda here. Exit code 1 when it does not fit into GB (141; on the CPU a rank's share of "
    "this machine's memory);\n"
    "then the keys are named with which it would. GB are 10^9 bytes.\n"
    "For GPUs also the time of a step, from rates: what a rank computes in forward and backward "
    "passes (520 TFLOP/s,\n"
    "575 with 8192 tokens a micro-batch and more: an H200 with Mixtral's shape), what it sends to "
    "others of its node (284 GB/s)\n"
    "and to other nodes (40), and the ranks of a node (8). --capability is that of the GPUs (9.0): "
    "engines and memory\n"
    "depend on it. GB and rates stay an H200's unless they are given.\n";

/* The words of the command line. */
struct request {
    const char *deck;
    int64_t ranks;                                 /* 0: not given */
    double memory_gb, tflops, link_gb, network_gb; /* 0: not given */
    int64_t node_ranks;                            /* the same */
    int capability;                                /* the same; 90 for 9.0 */
    int json, n;
    char **words; /* [n] keys */
};

static const char *value_of(int argc, char **argv, int *i) {
    if (*i + 1 == argc) die_user(EXIT_USAGE, "plan: %s needs a number", argv[*i]);
    return argv[++*i];
}

/* The number of an option whose name is argv[i]. */
static double rate_of(int argc, char **argv, int *i, const char *unit) {
    const char *name = argv[*i], *s = value_of(argc, argv, i);
    double x;
    if (!text_to_real(s, &x) || x <= 0)
        die_user(EXIT_USAGE, "plan: %s: '%s' is no number of %s", name, s, unit);
    return x;
}

static int64_t count_of(int argc, char **argv, int *i) {
    const char *name = argv[*i], *s = value_of(argc, argv, i);
    int64_t n;
    if (!text_to_int(s, &n) || n < 1 || n > 1 << 20)
        die_user(EXIT_USAGE, "plan: %s: '%s' is no number of ranks", name, s);
    return n;
}

static int capability_of(int argc, char **argv, int *i) {
    const char *s = value_of(argc, argv, i);
    double x;
    int tenths = text_to_real(s, &x) && x >= 1 && x < 100 ? (int)(10 * x + 0.5) : 0;
    if (tenths == 0 || 10 * x - tenths > 1e-6 || tenths - 10 * x > 1e-6)
        die_user(EXIT_USAGE, "plan: --capability: '%s' is no compute capability, as 9.0 is one", s);
    return tenths;
}

static void read_words(struct request *r, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            r->json = 1;
        } else if (strcmp(argv[i], "--ranks") == 0) {
            r->ranks = count_of(argc, argv, &i);
        } else if (strcmp(argv[i], "--node-ranks") == 0) {
            r->node_ranks = count_of(argc, argv, &i);
        } else if (strcmp(argv[i], "--capability") == 0) {
            r->capability = capability_of(argc, argv, &i);
        } else if (strcmp(argv[i], "--gpu-memory") == 0) {
            r->memory_gb = rate_of(argc, argv, &i, "GB");
        } else if (strcmp(argv[i], "--tflops") == 0) {
            r->tflops = rate_of(argc, argv, &i, "TFLOP/s");
        } else if (strcmp(argv[i], "--link") == 0) {
            r->link_gb = rate_of(argc, argv, &i, "GB/s");
        } else if (strcmp(argv[i], "--network") == 0) {
            r->network_gb = rate_of(argc, argv, &i, "GB/s");
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

/* auto8 becomes the recipe that it is on the plan's devices. */
static void settle_recipe(struct config *c, const struct plan *p) {
    char *problem = check_engines(c, p->cuda);
    if (!problem) problem = low_settle(c, plan_capability(p));
    if (problem) die_user(EXIT_CONFIG, "%s", problem);
}

/* What `regulon train` refuses before it allocates. */
static void refuse_engines(const struct plan *p) {
    struct backend_options o = run_options(p->config);
    struct shape s = shape_of(p->config);
    struct grid g = plan_place(p);
    struct work w = {.N = loader_capacity(p->config),
                     .D = s.D,
                     .F = s.F,
                     .E = s.E,
                     .A = s.A,
                     .attention = {.H = s.H, .G = s.G, .K = s.K, .window = s.window},
                     .low = low_recipe(p->config)};
    if (!p->cuda) return;
    w = cuda_work_on(w, plan_capability(p), &o);
    char why[200], *problem = cuda_work_refusal(&w);
    if (problem) die_user(EXIT_CONFIG, "%s", problem);
#if defined HAVE_CUDA && !defined HAVE_CUDNN /* as count.c has it */
    if (o.attention == ATTENTION_CUDNN)
        die_user(EXIT_CONFIG, "engine.attention: cudnn: this build has none");
#endif
    if (o.attention == ATTENTION_CUDNN &&
        !cuda_cudnn_serves(&w, o.fp32 ? 4 : 2, &o, why, sizeof why))
        die_user(EXIT_CONFIG, "engine.attention: cudnn: %s", why);
    int grouped = cuda_grouped_serves(&w, o.fp32 ? 4 : 2, &o, why, sizeof why);
    if (w.low == LOW_FP8_BLOCK && !grouped)
        die_user(EXIT_CONFIG,
                 "precision.recipe: the grouped kernels compute in eight bits, and cannot here: %s",
                 why);
    if (w.low == LOW_MXFP8 && w.way == LOW_FAST)
        grouped = cuda_mxfp8_up_serves(&w, why, sizeof why);
    if (o.experts == EXPERTS_GROUPED && !grouped)
        die_user(EXIT_CONFIG, "engine.experts: grouped: %s", why);
    if (o.exchange == EXCHANGE_PEER && g.ep_size > 1 &&
        !cuda_peer_serves(&w, &g, &o, why, sizeof why))
        die_user(EXIT_CONFIG, "engine.exchange: peer: %s", why);
    if (o.collectives == EXCHANGE_PEER && g.n_ranks > 1 &&
        (p->config->parallelism.shard == SHARD_FULL || p->config->engine.reduce == REDUCE_BESIDE) &&
        !cuda_pull_serves(&g, &o, why, sizeof why))
        die_user(EXIT_CONFIG, "engine.collectives: peer: %s", why);
}

static void check_params(const struct plan *p) {
    struct grid g = plan_place(p);
    run_check_params(p->config, &g);
}

static struct plan plan_of(struct config *c, const struct request *r) {
    struct plan p = {.config = c,
                     .capability = r->capability,
                     .node_ranks = r->node_ranks > 0 ? (int)r->node_ranks : PLAN_NODE_RANKS,
                     .cuda = c->backend != BACKEND_CPU};
    int64_t dp = c->parallelism.dp_size ? c->parallelism.dp_size : 1;
    int64_t ranks = r->ranks ? r->ranks : dp * c->parallelism.ep_size;
    const struct {
        const char *name;
        double given;
    } of_gpus[] = {{"--gpu-memory", r->memory_gb},
                   {"--tflops", r->tflops},
                   {"--link", r->link_gb},
                   {"--network", r->network_gb},
                   {"--node-ranks", (double)r->node_ranks},
                   {"--capability", r->capability}};
    for (int i = 0; i < 6; i++)
        if (!p.cuda && of_gpus[i].given > 0)
            die_user(EXIT_USAGE, "plan: %s: the deck asks for backend: cpu", of_gpus[i].name);
    char *problem = ranks > INT_MAX ? memory_string("too many ranks") : plan_grid(&p, (int)ranks);
    if (problem) die_user(EXIT_CONFIG, "%s", problem);
    p.limit = limit_of(&p, r);
    settle_recipe(c, &p);
    refuse_engines(&p);
    check_params(&p);
    return p;
}

static struct plan_rates rates_of(const struct plan *p, const struct request *r) {
    struct plan_rates rates =
        plan_rates_h200(loader_capacity(p->config), low_recipe(p->config) != LOW_NONE);
    if (r->tflops > 0) rates.flops = r->tflops * 1e12;
    if (r->link_gb > 0) rates.link = r->link_gb * 1e9;
    if (r->network_gb > 0) rates.network = r->network_gb * 1e9;
    return rates;
}

/* On rank 0; the exit code. */
static int plan(int argc, char **argv) {
    struct request r = {.words = memory_alloc_array((size_t)argc + 1, sizeof *r.words)};
    read_words(&r, argc, argv);
    struct config *c = config_load(r.deck, r.words, r.n);
    struct plan p = plan_of(c, &r);
    struct plan_rates rates = rates_of(&p, &r), *known = p.cuda ? &rates : NULL;
    int fits = r.json ? plan_print_json(&p, known, stdout) : plan_print(&p, known, stdout);
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
