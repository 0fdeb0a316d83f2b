#include "config.h"
#include "bench/bench.h"
#include "base/die.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "bench/gemm.h"
#include "bench/moe.h"
#include "bench/ops.h"
#include "bench/routing.h"
#include "train/run.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "regulon bench ops [--shape mixtral|fine|small] [--tokens N] [--csv FILE] [key=value ...]\n"
    "Each operation of a step on this machine, on one rank: time (median), the rate at which it "
    "moves the bytes that\n"
    "it cannot avoid, or computes the FLOPs that are of use; that rate as a share of a large "
    "copy's "
    "or a large\n"
    "matrix product's in the same run (ceiling); and its error against the CPU backend, at smaller "
    "sizes: exit code 70\n"
    "where one is wrong. Small shapes are for CPUs: the default is mixtral on a GPU, small "
    "without.\n"
    "Keys as in a deck: backend, deterministic, engine.*, precision.recipe.\n"
    "regulon bench gemm [--shape mixtral|fine|sonic] [--tokens N] [--routing balanced|skew:S|half|"
    "empty|one]\n"
    "[--only TEXT] [--seconds S] [--csv FILE] [key=value ...]\n"
    "The products of the experts on a GPU: TFLOP/s of rows that are of use by the grouped kernels, "
    "beside one dense\n"
    "product of cuBLASLt's of as many FLOPs and beside a product an expert with counts known to "
    "the host; taking turns,\n"
    "each for S seconds (2). Routing, of rows, which are tokens times experts a token: skew:S is "
    "log-normal with sigma S;\n"
    "half: one expert has half of them; empty: a third of the experts have none; one: one has "
    "all. --only: products whose names contain "
    "the text.\n"
    "regulon bench moe [--shape mixtral|fine|sonic|small] [--tokens N] [--routing ...] "
    "[--experts E,E,...]\n"
    "[--seconds S] [--csv FILE] [key=value ...]\n"
    "A whole mixture-of-experts layer, forward and backward, by each engine for the experts (or "
    "by engine.experts), for\n"
    "these numbers of experts at the same number of tokens. A token goes to different experts, "
    "which softens the routing.\n";

enum { MOST_NUMBERS = 32 };

struct options {
    enum what { OPS, GEMM, MOE } what;
    const struct shape_kind *shape; /* NULL: not given */
    int64_t tokens;                 /* 0: the shape's */
    const char *csv;
    const char *routing, *only;
    double seconds;                       /* of gemm's and moe's measurements */
    int experts[MOST_NUMBERS], n_experts; /* of moe */
    char **words;                         /* [n_words] keys */
    int n_words;
};

static const struct shape_kind *find_shape(const char *name) {
    for (size_t i = 0; i < n_shape_kinds; i++)
        if (strcmp(shape_kinds[i].name, name) == 0) return &shape_kinds[i];
    return NULL;
}

static int is_key(const char *word) {
    static const char *const keys[] = {"backend=", "deterministic=", "engine.",
                                       "precision.recipe="};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strncmp(word, keys[i], strlen(keys[i])) == 0) return 1;
    return 0;
}

/* 0: those are no numbers of experts. */
static int read_numbers(struct options *o, const char *text) {
    for (o->n_experts = 0; o->n_experts < MOST_NUMBERS; text++) {
        char *end;
        long n = strtol(text, &end, 10);
        if (end == text || n < 1 || n > 256) return 0;
        o->experts[o->n_experts++] = (int)n;
        text = end;
        if (*text == 0) return 1;
        if (*text != ',') return 0;
    }
    return 0;
}

/* One option with its value; 0 when that will not do, with what it takes in *takes; NULL there: no
 * such option. */
static int read_option(struct options *o, const char *name, const char *value, const char **takes) {
    *takes = NULL;
    if (strcmp(name, "--shape") == 0) {
        *takes = "mixtral, fine, sonic or small";
        return value && (o->shape = find_shape(value));
    }
    if (strcmp(name, "--tokens") == 0) {
        *takes = "a number of tokens, 1 to 1048576";
        return value && text_to_int(value, &o->tokens) && o->tokens > 0 && o->tokens <= 1 << 20;
    }
    if (o->what != OPS && strcmp(name, "--routing") == 0) {
        double weight;
        *takes = "balanced, skew:S with S from 0 to 5, half, empty or one";
        return value && routing_weights(o->routing = value, &weight, 1);
    }
    if (o->what == GEMM && strcmp(name, "--only") == 0) {
        *takes = "a part of products' names";
        return (o->only = value) != NULL;
    }
    if (o->what == MOE && strcmp(name, "--experts") == 0) {
        *takes = "numbers of experts with commas between, 1 to 256 each, 32 at most";
        return value && read_numbers(o, value);
    }
    if (o->what != OPS && strcmp(name, "--seconds") == 0) {
        *takes = "seconds, 0.01 to 60";
        return value && text_to_real(value, &o->seconds) && o->seconds >= 0.01 && o->seconds <= 60;
    }
    if (strcmp(name, "--csv") == 0) {
        *takes = "a file to write";
        return (o->csv = value) != NULL;
    }
    return 0;
}

static struct options read_options(int argc, char **argv) {
    struct options o = {.words = memory_alloc_array((size_t)argc + 1, sizeof *o.words),
                        .routing = "balanced",
                        .seconds = 2};
    static const char *const whats[] = {[OPS] = "ops", [GEMM] = "gemm", [MOE] = "moe"};
    while (argc > 0 && o.what <= MOE && strcmp(argv[0], whats[o.what]) != 0) o.what++;
    if (argc < 1 || o.what > MOE) {
        if (log_rank() == 0)
            die_user(EXIT_USAGE,
                     "bench: what? regulon bench ops, gemm or moe; see regulon bench --help");
        user_agree();
    }
    for (int i = 1; i < argc; i++) {
        const char *takes;
        if (is_key(argv[i])) {
            o.words[o.n_words++] = argv[i];
        } else if (read_option(&o, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &takes)) {
            i++;
        } else if (log_rank() == 0) {
            if (takes) die_user(EXIT_USAGE, "bench: %s takes %s", argv[i], takes);
            die_user(EXIT_USAGE, "bench: unknown word '%s'; see regulon bench --help", argv[i]);
        }
    }
    user_agree();
    return o;
}

struct choice {
    const struct config *c;
    const struct grid *g;
};

static struct backend *open_chosen(void *context) {
    const struct choice *choice = context;
    return run_backend(choice->c, choice->g);
}

/* The deck serves for its defaults: of it only the keys of is_key matter. */
static struct config *load_keys(const struct options *o) {
    struct config *c = config_load_all("L0_sanity", o->words, o->n_words);
    c->parallelism.dp_size = c->parallelism.ep_size = 1;
    run_dp_size(c); /* refuses more ranks than one */
    return c;
}

static FILE *open_csv(const char *path) {
    FILE *f = path ? fopen(path, "w") : NULL;
    if (path && !f) die_user(EXIT_IO, "--csv: cannot write %s: %s", path, strerror(errno));
    return f;
}

static void bench_gemm(struct backend *be, const struct options *o, const struct sizes *z,
                       FILE *csv) {
#ifdef HAVE_CUDA
    if (strcmp(be->name, "cuda") == 0) {
        double *weights = memory_alloc_array((size_t)z->E, sizeof *weights);
        ops_reserve(be, z);
        if (be->row_unit == 1)
            die_user(EXIT_CONFIG, "bench gemm: the grouped kernels cannot serve here: %s",
                     be->engines);
        routing_weights(o->routing, weights, z->E);
        struct gemm_wish wish = {
            .routing = o->routing, .only = o->only, .weights = weights, .seconds = o->seconds};
        gemm_run(be, z, &wish, csv);
        memory_free(weights);
        return;
    }
#endif
    (void)o, (void)z, (void)csv;
    die_user(EXIT_CONFIG, "bench gemm needs a GPU and the grouped kernels; the backend is %s",
             be->name);
}

static struct backend *open_with(void *context, enum experts_engine engine) {
    struct choice *choice = context;
    struct config c = *choice->c;
    c.engine.experts = engine;
    return run_backend(&c, choice->g);
}

static void bench_moe(struct backend *be, struct choice *choice, const struct options *o,
                      const struct sizes *z, FILE *csv) {
    struct moe_wish wish = {.engine = (enum experts_engine)choice->c->engine.experts,
                            .routing = o->routing,
                            .experts = o->n_experts ? o->experts : &z->E,
                            .n = o->n_experts ? o->n_experts : 1,
                            .seconds = o->seconds};
    moe_run(be, open_with, choice, z, &wish, csv);
}

int bench_main(int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "--help") == 0) {
        if (log_rank() == 0) fputs(help, stdout);
        return EXIT_FINISHED;
    }
    struct options o = read_options(argc, argv);
    struct config *c = load_keys(&o);
    struct grid g;
    grid_open(&g, MPI_COMM_WORLD, 1, 1);
    struct choice choice = {c, &g};
    struct backend *be = open_chosen(&choice); /* auto is settled once */
    c->backend = strcmp(be->name, "cuda") == 0 ? BACKEND_CUDA : BACKEND_CPU;
    struct shape_kind kind =
        o.shape ? *o.shape : *find_shape(c->backend == BACKEND_CUDA ? "mixtral" : "small");
    if (o.tokens) kind.full.N = (int)o.tokens;
    FILE *csv = open_csv(o.csv);
    int wrong = 0;
    if (o.what == GEMM) {
        bench_gemm(be, &o, &kind.full, csv);
        backend_close(be);
    } else if (o.what == MOE) {
        bench_moe(be, &choice, &o, &kind.full, csv);
    } else {
        wrong = ops_run(be, open_chosen, &choice, &kind, csv);
    }
    if (csv && fclose(csv) != 0)
        die_user(EXIT_IO, "--csv: cannot write %s: %s", o.csv, strerror(errno));
    grid_close(&g);
    config_free(c);
    memory_free(o.words);
    return wrong ? EXIT_INTERNAL : EXIT_FINISHED;
}
