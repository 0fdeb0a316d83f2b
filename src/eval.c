#include "config.h"
#include "eval.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/check.h"
#include "data/loader.h"
#include "score/record_table.h"
#include "score/routing_file.h"
#include "train/run.h"
#include "train/trained.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static void print_evaluation(const struct run_data *d, const struct evaluation *e, int json) {
    if (json && isnan(e->loss)) {
        printf("{\"loss\": null, \"bits_per_base\": null, \"targets\": %.0f}\n", e->targets);
        return;
    }
    if (json) {
        printf("{\"loss\": %.6f, \"bits_per_base\": %.6f, \"targets\": %.0f, "
               "\"markov_bits_per_base\": [",
               e->loss, e->bits_per_base, e->targets);
        for (int k = 0; k < MARKOV_ORDERS; k++)
            if (isnan(d->markov.bits_per_base[k]))
                printf("%snull", k ? ", " : "");
            else
                printf("%s%.6f", k ? ", " : "", d->markov.bits_per_base[k]);
        printf("]}\n");
        return;
    }
    printf("held-out loss   %.4f nats/token, %.4f bits/base, over %.0f targets\n", e->loss,
           e->bits_per_base, e->targets);
    for (int k = 0; k < MARKOV_ORDERS; k++)
        if (!isnan(d->markov.bits_per_base[k]))
            printf("Markov order %d  %.4f bits/base%s\n", k, d->markov.bits_per_base[k],
                   k == d->markov.best ? "  (best)" : "");
}

static const char help[] =
    "regulon eval RUN|STEP_FOLDER|HF_FOLDER [option ...] [key=value ...]\n"
    "Loss of a run's newest checkpoint or, where that is later, its final "
    "model, or of one of its step\n"
    "folders, on the run's held-out data: every target once, weight 1, no auxiliary losses. A "
    "Hugging Face\nfolder needs dataset.path (for the Markov chains) and validation.data_path.\n"
    "Keys override the run's own, for example "
    "validation.data_path=other.fa, parallelism.ep_size=2.\n"
    "  --json           what is printed as JSON\n"
    "  --records FILE   also a line a record: nats per token, bits per base, and those of Markov "
    "chains;\n"
    "                   tab-separated, or HDF5 where FILE ends in .h5\n"
    "  --routing FILE   also the experts that each held-out base was sent to, HDF5; see regulon "
    "experts\n";

struct request {
    const char *model, *records, *routing; /* files: NULL, not wanted */
    int json, n;
    char **words; /* [n] key=value */
};

/* The value of option `name` where words[*i] is it, else NULL. */
static const char *value_of(const char *name, char **argv, int argc, int *i) {
    size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0 || (argv[*i][n] && argv[*i][n] != '=')) return NULL;
    if (argv[*i][n]) return argv[*i] + n + 1;
    if (*i + 1 < argc) return argv[++*i];
    if (log_rank() == 0) die_user(EXIT_USAGE, "eval: %s needs a value: FILE", name);
    return "";
}

static void read_words(struct request *r, int argc, char **argv) {
    static char no_share[] = "dataset.holdout_share=0";
    const char *value;
    int other_data = 0;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            r->json = 1;
        else if ((value = value_of("--records", argv, argc, &i)))
            r->records = value;
        else if ((value = value_of("--routing", argv, argc, &i)))
            r->routing = value;
        else if (argv[i][0] == '-' && log_rank() == 0)
            die_user(EXIT_USAGE, "eval: unknown option '%s'; see regulon eval --help", argv[i]);
        else if (!r->model)
            r->model = argv[i];
        else
            r->words[r->n++] = argv[i];
        other_data |= strncmp(argv[i], "validation.data_path=", 21) == 0;
    }
    if (other_data) r->words[r->n++] = no_share; /* instead of the run's own held-out share */
    if (log_rank() != 0) return;
    if (!r->model) die_user(EXIT_USAGE, "eval: which model? regulon eval RUN [key=value ...]");
    if (r->records && r->routing && strcmp(r->records, r->routing) == 0)
        die_user(EXIT_USAGE, "eval: --records and --routing: both to %s", r->records);
}

/* Where what is known of single bases goes, on rank 0. */
struct files {
    struct record_table *records; /* NULL: not wanted */
    struct routing_file *routing;
};

static void take(void *context, const struct stretch *s, const uint16_t *experts,
                 const float *weights) {
    struct files *f = context;
    if (f->records) record_table_add(f->records, s);
    if (f->routing) routing_file_add(f->routing, s, experts, weights);
}

static int by_base(const struct request *r) {
    return r->records || r->routing;
}

/* The evaluation, base by base where the request asks for it. */
static struct evaluation evaluate(struct trained *t, const struct run_data *d,
                                  const struct request *r, struct batch *batch) {
    const struct config *c = t->config;
    struct files f = {NULL, NULL};
    struct bases b;
    int64_t n = c->validation.num_batches;
    if (!by_base(r))
        return evaluate_streams(t->model, d->held_out, d->n_held_out, n, batch, NULL, NULL, NULL);
    bases_open(&b, t, d->held_out, r->routing != NULL, take, &f);
    if (t->grid.rank == 0) {
        if (r->routing) f.routing = routing_file_open(r->routing, r->model, d, c);
        if (r->records) f.records = record_table_open(r->records, r->model, d, c);
    }
    user_agree();
    struct evaluation e =
        evaluate_streams(t->model, d->held_out, d->n_held_out, n, batch, NULL, NULL, &b.each);
    bases_close(&b);
    if (f.records) record_table_close(f.records);
    if (f.routing) routing_file_close(f.routing);
    return e;
}

/* Prints the model's loss on the deck's held-out data. */
static void eval_run(struct trained *t, const struct request *r) {
    struct config *c = t->config;
    struct run_data d;
    char *cache = file_join(r->model, "cache");
    char *problem = by_base(r) ? bases_refusal(c, loader_capacity(c)) : NULL;
    if (problem && t->grid.rank == 0) die_user(EXIT_CONFIG, "%s", problem);
    user_agree();
    run_data_open(&d, c, cache);
    trained_load(t, loader_capacity(c));
    struct batch *b = batch_new(t->model->capacity);
    struct evaluation e = evaluate(t, &d, r, b);
    if (t->grid.rank == 0) print_evaluation(&d, &e, r->json);
    batch_free(b);
    run_data_close(&d);
    memory_free(cache);
}

int eval_main(int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "--help") == 0) {
        if (log_rank() == 0) fputs(help, stdout);
        return EXIT_FINISHED;
    }
    struct request r = {.words = memory_alloc_array((size_t)argc + 2, sizeof *r.words)};
    read_words(&r, argc, argv);
    user_agree();
    struct trained t;
    trained_find(&t, r.model, r.words, r.n);
    char *problem = log_rank() == 0 ? check_training(t.config) : NULL;
    if (problem) die_user(EXIT_CONFIG, "%s", problem);
    user_agree();
    t.config->validation.enabled = 1; /* so that there must be held-out data */
    trained_open(&t, r.words, r.n, /*spread=*/1);
    eval_run(&t, &r);
    trained_close(&t);
    memory_free(r.words);
    return EXIT_FINISHED;
}
