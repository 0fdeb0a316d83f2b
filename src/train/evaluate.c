#include "config.h"
#include "train/evaluate.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/hf.h"
#include "data/loader.h"
#include "train/run.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

struct evaluation evaluate_stream(struct model *m, const struct stream *s, int64_t n_batches,
                                  struct batch *b) {
    const struct grid *g = m->be->grid;
    int64_t all = loader_chunks(s, b->capacity),
            n = n_batches > 0 && n_batches < all ? n_batches : all;
    double sums[2] = {0, 0};
    for (int64_t first = 0; first < n; first += g->n_ranks) {
        /* a rank past the end takes part with no tokens */
        if (first + g->rank < n)
            loader_fill_chunk(s, first + g->rank, b);
        else
            batch_clear(b);
        for (int i = 0; i < b->n; i++) b->weights[i] = b->targets[i] >= 0;
        model_forward(m, b);
        sums[0] += model_loss(m);
        sums[1] += (double)b->n_targets;
    }
    m->be->sum_double(m->be, g->world, sums, 2);
    struct evaluation e = {.loss = sums[0] / sums[1], .targets = sums[1]};
    e.bits_per_base = e.loss / log(2);
    return e;
}

/* The deck and the weights of MODEL, a run folder: used.yaml and final_model. Rank 0; the caller
 * frees both. */
static void find_model(const char *model, char **deck, char **weights) {
    char *used = file_join(model, "used.yaml"), *final = file_join(model, "final_model"),
         *tensors = file_join(final, "model.safetensors");
    *deck = *weights = NULL;
    if (file_exists(used) && file_exists(tensors))
        *deck = memory_string(used), *weights = memory_string(final);
    else if (file_exists(used))
        die_user(EXIT_DATA,
                 "%s: a run folder without final_model/model.safetensors: did the run finish, with "
                 "checkpoint.save_final_model?",
                 model);
    else
        die_user(EXIT_DATA, "%s: not a run folder (it has no used.yaml)", model);
    memory_free(used);
    memory_free(final);
    memory_free(tensors);
}

static void print_evaluation(const struct run_data *d, const struct evaluation *e, int json) {
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

static const char help[] = "regulon eval RUN [--json] [key=value ...]\n"
                           "Loss of the run's final model on its held-out data: every target once, "
                           "weight 1, no auxiliary losses.\n"
                           "Keys override the run's own, for example "
                           "validation.data_path=other.fa, parallelism.ep_size=2.\n";

int evaluate_main(int argc, char **argv) {
    int json = 0, n = 0;
    const char *model = NULL;
    char **words = memory_alloc_array((size_t)argc + 2, sizeof *words), *deck = NULL,
         *weights = NULL;
    char where[4096] = "";
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) return log_rank() == 0 ? fputs(help, stdout), 0 : 0;
        if (strcmp(argv[i], "--json") == 0)
            json = 1;
        else if (argv[i][0] == '-') {
            if (log_rank() == 0)
                die_user(EXIT_USAGE, "eval: unknown option '%s'; see regulon eval --help", argv[i]);
            user_agree();
        } else if (!model)
            model = argv[i];
        else
            words[n++] = argv[i];
    }
    if (log_rank() == 0) {
        if (!model) die_user(EXIT_USAGE, "eval: which model? regulon eval RUN [key=value ...]");
        find_model(model, &deck, &weights);
        snprintf(where, sizeof where, "%s", weights);
    }
    user_agree();
    MPI_Bcast(where, sizeof where, MPI_CHAR, 0, MPI_COMM_WORLD);
    struct config *c = config_load_all(deck, words, n);
    struct grid g;
    struct run_data d;
    c->parallelism.dp_size = run_dp_size(c);
    grid_open(&g, MPI_COMM_WORLD, (int)c->parallelism.dp_size, (int)c->parallelism.ep_size);
    struct backend *be = run_backend(c, &g);
    char *cache = file_join(model, "cache");
    run_data_open(&d, c, cache);
    if (g.rank == 0 && !d.held_out)
        die_user(EXIT_CONFIG,
                 "eval: nothing is held out; name data with validation.data_path=FILE");
    user_agree();
    struct model *m = model_new(c, be, loader_capacity(c), /*with_gradients=*/0);
    struct batch *b = batch_new(m->capacity);
    hf_load(m, where);
    struct evaluation e = evaluate_stream(m, d.held_out, c->validation.num_batches, b);
    if (g.rank == 0) print_evaluation(&d, &e, json);
    batch_free(b);
    model_free(m);
    run_data_close(&d);
    backend_close(be);
    grid_close(&g);
    config_free(c);
    memory_free(cache);
    memory_free(deck);
    memory_free(weights);
    memory_free(words);
    return EXIT_FINISHED;
}
