#include "config.h"
#include "bench/bench.h"
#include "base/die.h"
#include "base/log.h"
#include "base/memory.h"
#include "bench/comm.h"
#include "bench/gemm.h"
#include "bench/moe.h"
#include "bench/ops.h"
#include "bench/options.h"
#include "bench/routing.h"
#include "bench/steps.h"
#include "grouped_sizes.h"
#include "train/run.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct choice {
    struct config *c;
    const struct grid *g;
};

static struct backend *open_chosen(void *context) {
    const struct choice *choice = context;
    return run_backend(choice->c, choice->g);
}

/* A recipe of eight bits is that of a model's layers: of the parts gemm alone has it. */
static void refuse_low(const struct options *o, const struct config *c) {
    if (o->what != STEP && o->what != GEMM && c->precision.recipe >= PRECISION_FP8_BLOCK &&
        log_rank() == 0)
        die_user(
            EXIT_CONFIG,
            "bench %s: precision.recipe is fp32 or bf16 here; bench gemm and step have those of "
            "eight bits",
            options_name(o->what));
    user_agree();
}

static int ranks(void) {
    int n;
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    return n;
}

/* Where no token goes anywhere it would change nothing. */
static void refuse_rows(const struct options *o, const struct config *c) {
    if ((o->what == GEMM || o->what == MLP) && c->precision.fp8_dispatch && log_rank() == 0)
        die_user(EXIT_CONFIG,
                 "bench %s: precision.fp8_dispatch changes nothing here; bench ops, moe, comm and "
                 "step have it",
                 options_name(o->what));
    user_agree();
}

/* A step is one of all ranks. */
static void refuse_ranks(const struct options *o) {
    int n = ranks();
    if (n > 1 && o->what != STEP && o->what != COMM && log_rank() == 0)
        die_user(EXIT_CONFIG, "bench %s runs on one rank; this job has %d", options_name(o->what),
                 n);
    user_agree();
}

/* Of step the deck asked for, which need not say what to train on. Else one that serves for its
 * defaults: only the keys that options_read lets through matter. */
static struct config *load_deck(const struct options *o) {
    const char *deck = o->what == STEP ? o->deck : "L0_sanity";
    struct config *c = log_rank() == 0 ? config_load(deck, o->words, o->n_words) : NULL;
    user_agree();
    if (!c) c = config_load(deck, o->words, o->n_words);
    if (o->what != STEP) c->parallelism.dp_size = 1;
    if (o->what != STEP) c->parallelism.ep_size = ranks();
    c->parallelism.dp_size = run_dp_size(c);
    return c;
}

static FILE *open_csv(const char *path) {
    FILE *f = path ? fopen(path, "w") : NULL;
    if (path && !f) die_user(EXIT_IO, "--csv: cannot write %s: %s", path, strerror(errno));
    return f;
}

static void bench_gemm(struct backend *be, const struct options *o, const struct sizes *z, int low,
                       FILE *csv) {
#ifdef HAVE_CUDA
    if (strcmp(be->name, "cuda") == 0) {
        double *weights = memory_alloc_array((size_t)z->E, sizeof *weights);
        ops_reserve(be, z);
        if (!moe_grouped(be))
            die_user(EXIT_CONFIG, "bench gemm: the grouped kernels cannot serve here: %s",
                     be->engines);
        routing_weights(o->routing, weights, z->E);
        struct gemm_wish wish = {
            .routing = o->routing, .only = o->only, .weights = weights, .seconds = o->seconds};
        if (low && (z->D % GROUPED_FP8_UNIT || z->F % GROUPED_FP8_UNIT))
            die_user(EXIT_CONFIG,
                     "bench gemm: in eight bits widths are multiples of %d; the shape has %d and "
                     "%d: --shape gives others",
                     GROUPED_FP8_UNIT, z->D, z->F);
        if (low)
            gemm_low_run(be, z, &wish, csv);
        else
            gemm_run(be, z, &wish, csv);
        memory_free(weights);
        return;
    }
#endif
    (void)o, (void)z, (void)low, (void)csv;
    die_user(EXIT_CONFIG, "bench gemm needs a GPU and the grouped kernels; the backend is %s",
             be->name);
}

static struct backend *open_with(void *context, enum experts_engine engine, int fused) {
    struct choice *choice = context;
    struct config c = *choice->c;
    c.engine.experts = (int)engine;
    c.engine.fused = fused;
    return run_backend(&c, choice->g);
}

static void bench_moe(struct backend *be, struct choice *choice, const struct options *o,
                      const struct sizes *z, FILE *csv) {
    struct moe_wish wish = {.engine = (enum experts_engine)choice->c->engine.experts,
                            .fused = choice->c->engine.fused,
                            .routing = o->routing,
                            .experts = o->n ? o->list : &z->E,
                            .n = o->n ? o->n : 1,
                            .seconds = o->seconds,
                            .alone = o->what == MLP};
    moe_run(be, open_with, choice, z, &wish, csv);
}

static struct backend *open_way(void *context, enum exchange_engine way) {
    struct choice *choice = context;
    struct config c = *choice->c;
    c.engine.exchange = (int)way;
    return run_backend(&c, choice->g);
}

static struct backend *open_beside(void *context, enum exchange_engine way) {
    struct choice *choice = context;
    struct config c = *choice->c;
    c.engine.collectives = (int)way;
    return run_backend(&c, choice->g);
}

static int bench_comm(struct backend *be, struct choice *choice, const struct options *o,
                      const struct sizes *z, FILE *csv) {
    static const int usual[] = {1, 16, 256, 1024, 4096, 8192, 16384};
    int all = (int)(sizeof usual / sizeof *usual);
    if (choice->g->n_ranks == 1)
        die_user(EXIT_CONFIG, "bench comm: a job of one rank sends nothing; start several with "
                              "mpiexec or srun");
    if (z->E % choice->g->ep_size && choice->g->rank == 0)
        die_user(EXIT_CONFIG, "bench comm: %d ranks do not divide %d experts", choice->g->ep_size,
                 z->E);
    user_agree();
    struct comm_wish wish = {.way = (enum exchange_engine)choice->c->engine.exchange,
                             .beside = (enum exchange_engine)choice->c->engine.collectives,
                             .routing = o->routing,
                             .tokens = o->n ? o->list : usual,
                             .n = o->n ? o->n : all,
                             .seconds = o->seconds};
    return comm_run(be, open_way, open_beside, choice, z, &wish, csv);
}

/* All but step. Returns how many results are wrong. */
static int bench_parts(struct config *c, const struct grid *g, const struct options *o, FILE *csv) {
    struct choice choice = {c, g};
    struct backend *be = open_chosen(&choice); /* auto is settled once */
    c->backend = strcmp(be->name, "cuda") == 0 ? BACKEND_CUDA : BACKEND_CPU;
    struct shape_kind kind =
        o->shape ? *o->shape : *options_shape(c->backend == BACKEND_CUDA ? "mixtral" : "small");
    if (o->tokens) kind.full.N = (int)o->tokens;
    if (o->what == COMM) return bench_comm(be, &choice, o, &kind.full, csv);
    if (o->what == OPS) return ops_run(be, open_chosen, &choice, &kind, csv);
    if (o->what != GEMM) {
        bench_moe(be, &choice, o, &kind.full, csv);
        return 0;
    }
    bench_gemm(be, o, &kind.full, c->precision.recipe == PRECISION_FP8_BLOCK, csv);
    backend_close(be);
    return 0;
}

/* The same on every rank; mistakes are found by one. */
static struct options read_words(int argc, char **argv) {
    struct options o = {0};
    if (log_rank() == 0) o = options_read(argc, argv);
    user_agree();
    return log_rank() == 0 ? o : options_read(argc, argv);
}

int bench_main(int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "--help") == 0) {
        if (log_rank() == 0) fputs(options_help, stdout);
        return EXIT_FINISHED;
    }
    struct options o = read_words(argc, argv);
    refuse_ranks(&o);
    struct config *c = load_deck(&o);
    refuse_low(&o, c);
    refuse_rows(&o, c);
    struct grid g;
    int wrong = 0;
    grid_open(&g, MPI_COMM_WORLD, (int)c->parallelism.dp_size, (int)c->parallelism.ep_size);
    FILE *csv = g.rank == 0 ? open_csv(o.csv) : NULL;
    user_agree();
    if (o.what == STEP)
        steps_run(c, &g, o.seconds, csv);
    else
        wrong = bench_parts(c, &g, &o, csv);
    if (csv && fclose(csv) != 0)
        die_user(EXIT_IO, "--csv: cannot write %s: %s", o.csv, strerror(errno));
    grid_close(&g);
    config_free(c);
    memory_free(o.words);
    return wrong ? EXIT_INTERNAL : EXIT_FINISHED;
}
