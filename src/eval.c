#include "config.h"
#include "eval.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/check.h"
#include "data/loader.h"
#include "train/evaluate.h"
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
    "regulon eval RUN|STEP_FOLDER|HF_FOLDER [--json] [key=value ...]\n"
    "Loss of a run's newest checkpoint or, where that is later, its final "
    "model, or of one of its step\n"
    "folders, on the run's held-out data: every target once, weight 1, no auxiliary losses. A "
    "Hugging Face\nfolder needs dataset.path (for the Markov chains) and validation.data_path.\n"
    "Keys override the run's own, for example "
    "validation.data_path=other.fa, parallelism.ep_size=2.\n";

/* The words of the command line: *json, the run, and the keys, in words[*n]. */
static const char *read_words(int argc, char **argv, int *json, char **words, int *n) {
    static char no_share[] = "dataset.holdout_share=0";
    const char *model = NULL;
    int other_data = 0;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            *json = 1;
        else if (argv[i][0] == '-' && log_rank() == 0)
            die_user(EXIT_USAGE, "eval: unknown option '%s'; see regulon eval --help", argv[i]);
        else if (!model)
            model = argv[i];
        else
            words[(*n)++] = argv[i];
        other_data |= strncmp(argv[i], "validation.data_path=", 21) == 0;
    }
    if (other_data) words[(*n)++] = no_share; /* instead of the run's own held-out share */
    if (!model && log_rank() == 0)
        die_user(EXIT_USAGE, "eval: which model? regulon eval RUN [key=value ...]");
    return model;
}

/* Prints the model's loss on the deck's held-out data. */
static void eval_run(struct trained *t, const char *run, int json) {
    struct config *c = t->config;
    struct run_data d;
    char *cache = file_join(run, "cache");
    run_data_open(&d, c, cache);
    trained_load(t, loader_capacity(c));
    struct batch *b = batch_new(t->model->capacity);
    struct evaluation e = evaluate_streams(t->model, d.held_out, d.n_held_out,
                                           c->validation.num_batches, b, NULL, NULL);
    if (t->grid.rank == 0) print_evaluation(&d, &e, json);
    batch_free(b);
    run_data_close(&d);
    memory_free(cache);
}

int eval_main(int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "--help") == 0) {
        if (log_rank() == 0) fputs(help, stdout);
        return EXIT_FINISHED;
    }
    int json = 0, n = 0;
    char **words = memory_alloc_array((size_t)argc + 2, sizeof *words);
    const char *run = read_words(argc, argv, &json, words, &n);
    user_agree();
    struct trained t;
    trained_find(&t, run, words, n);
    char *problem = log_rank() == 0 ? check_training(t.config) : NULL;
    if (problem) die_user(EXIT_CONFIG, "%s", problem);
    user_agree();
    t.config->validation.enabled = 1; /* so that there must be held-out data */
    trained_open(&t, words, n, /*spread=*/1);
    eval_run(&t, run, json);
    trained_close(&t);
    memory_free(words);
    return EXIT_FINISHED;
}
