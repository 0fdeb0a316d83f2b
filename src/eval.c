#include "config.h"
#include "eval.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/restore.h"
#include "data/loader.h"
#include "grid/watchdog.h"
#include "train/evaluate.h"
#include "train/run.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

void eval_find_model(const char *model, char **deck, char **weights) {
    char *plain = memory_string(model); /* without a slash at its end */
    for (size_t n = strlen(plain); n > 1 && plain[n - 1] == '/';) plain[--n] = 0;
    char *here = file_join(model, "used.yaml"), *folder = file_folder(plain),
         *above = file_join(folder, "used.yaml"), *sums = file_join(model, "checksums");
    *weights = checkpoint_find_weights(model);
    if (file_exists(here))
        *deck = memory_string(here);
    else if (file_exists(sums) && file_exists(above))
        *deck = memory_string(above);
    else
        die_user(EXIT_DATA,
                 "%s: neither a run folder (it has no used.yaml) nor a step folder of one", model);
    if (!*weights)
        die_user(EXIT_DATA,
                 "%s: a run folder with neither a final_model nor a checkpoint: it has not saved "
                 "its weights",
                 model);
    memory_free(plain);
    memory_free(here);
    memory_free(folder);
    memory_free(above);
    memory_free(sums);
}

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
    "regulon eval RUN|STEP_FOLDER [--json] [key=value ...]\n"
    "Loss of a run's newest checkpoint or, where that is later, its final "
    "model, or of one of its step\n"
    "folders, on the run's held-out data: every target once, weight 1, no auxiliary losses.\n"
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

void eval_choose_grid(struct config *c, char *const *words, int n) {
    int ranks, E = (int)c->model.num_local_experts, ep;
    for (int i = 0; i < n; i++)
        if (strncmp(words[i], "parallelism.", 12) == 0) return;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (ep = ranks < E ? ranks : E; ranks % ep || E % ep;) ep--;
    if (c->backend == BACKEND_CUDA && c->engine.exchange == EXCHANGE_AUTO) ep = 1; /* untried */
    c->parallelism.dp_size = 0;
    c->parallelism.ep_size = ep;
}

/* Loads the model from `weights` and prints its loss on the deck's held-out data. */
static void eval_run(struct config *c, const char *run, const char *weights, int json) {
    struct grid g;
    struct run_data d;
    c->parallelism.dp_size = run_dp_size(c);
    c->validation.enabled = 1; /* so that there must be held-out data */
    grid_open(&g, MPI_COMM_WORLD, (int)c->parallelism.dp_size, (int)c->parallelism.ep_size);
    watchdog_open(&g, c->watchdog.timeout_s, NULL, NULL);
    struct backend *be = run_backend(c, &g);
    char *cache = file_join(run, "cache");
    run_data_open(&d, c, cache);
    struct model *m = model_new(c, be, loader_capacity(c), /*with_gradients=*/0);
    struct batch *b = batch_new(m->capacity);
    checkpoint_load_weights(m, weights);
    watchdog_part(WATCHDOG_VALIDATION, 0);
    struct evaluation e =
        evaluate_streams(m, d.held_out, d.n_held_out, c->validation.num_batches, b, NULL, NULL);
    if (g.rank == 0) print_evaluation(&d, &e, json);
    batch_free(b);
    model_free(m);
    run_data_close(&d);
    backend_close(be);
    watchdog_close();
    grid_close(&g);
    memory_free(cache);
}

int eval_main(int argc, char **argv) {
    if (argc > 0 && strcmp(argv[0], "--help") == 0) {
        if (log_rank() == 0) fputs(help, stdout);
        return EXIT_FINISHED;
    }
    int json = 0, n = 0;
    char **words = memory_alloc_array((size_t)argc + 2, sizeof *words), *deck = NULL,
         *weights = NULL;
    const char *run = read_words(argc, argv, &json, words, &n);
    if (log_rank() == 0) eval_find_model(run, &deck, &weights);
    user_agree();
    struct config *c = config_load_all(deck, words, n);
    eval_choose_grid(c, words, n);
    eval_run(c, run, weights, json);
    config_free(c);
    memory_free(deck);
    memory_free(weights);
    memory_free(words);
    return EXIT_FINISHED;
}
