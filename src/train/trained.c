#include "config.h"
#include "train/trained.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/restore.h"
#include "checkpoint/weights.h"
#include "grid/watchdog.h"
#include "train/run.h"
#include <string.h>

void trained_find(struct trained *t, const char *model, char *const *words, int n) {
    char *deck = NULL, *more[2] = {NULL, NULL},
         **all = memory_alloc_array((size_t)n + 2, sizeof *all);
    memset(t, 0, sizeof *t);
    if (n) memcpy(all, words, (size_t)n * sizeof *all);
    if (log_rank() == 0) {
        t->weights = checkpoint_find_weights(model);
        deck = checkpoint_find_deck(model, t->weights ? t->weights : model);
        char *json = file_join(model, "config.json");
        if (!deck && file_exists(json))
            die_user(EXIT_DATA, "%s: a config.json without model.safetensors", model);
        memory_free(json);
        if (!deck)
            die_user(EXIT_DATA,
                     "%s: neither a run folder (it has no used.yaml) nor a step folder of one, nor "
                     "a Hugging Face folder",
                     model);
        if (!t->weights)
            die_user(EXIT_DATA,
                     "%s: a run folder with neither a final_model nor a checkpoint: it has not "
                     "saved its weights",
                     model);
        if (file_has_suffix(deck, "config.json")) {
            int found = hf_files_words(deck, words, n, more);
            for (int i = 0; i < found; i++) all[n++] = more[i];
        }
    }
    user_agree();
    t->config = config_load_model(deck, all, n);
    memory_free(more[0]);
    memory_free(more[1]);
    memory_free(all);
    memory_free(deck);
}

static void choose_grid(struct config *c, char *const *words, int n, int spread) {
    int ranks, E = (int)c->model.num_local_experts, ep = 1;
    for (int i = 0; i < n; i++)
        if (strncmp(words[i], "parallelism.", 12) == 0) return;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (spread)
        for (ep = ranks < E ? ranks : E; ranks % ep || E % ep;) ep--;
    c->parallelism.dp_size = 0;
    c->parallelism.ep_size = ep;
}

void trained_open(struct trained *t, char *const *words, int n, int spread) {
    struct config *c = t->config;
    choose_grid(c, words, n, spread);
    c->parallelism.dp_size = run_dp_size(c);
    grid_open(&t->grid, MPI_COMM_WORLD, (int)c->parallelism.dp_size, (int)c->parallelism.ep_size);
    watchdog_open(&t->grid, c->watchdog.timeout_s, NULL, NULL);
    t->be = run_backend(c, &t->grid);
}

void trained_load(struct trained *t, int capacity) {
    t->model = model_new(t->config, t->be, capacity, /*with_gradients=*/0);
    weights_load(t->model, t->weights);
    watchdog_part(WATCHDOG_VALIDATION, 0);
}

void trained_close(struct trained *t) {
    model_free(t->model);
    backend_close(t->be);
    watchdog_close();
    grid_close(&t->grid);
    config_free(t->config);
    memory_free(t->weights);
}
