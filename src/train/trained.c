#include "config.h"
#include "train/trained.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/restore.h"
#include "grid/watchdog.h"
#include "train/run.h"
#include <string.h>

/* The first of these files that exists, NULL: none; all are freed. */
static char *first_of(char **files, int n) {
    char *found = NULL;
    for (int i = 0; i < n; i++)
        if (!found && files[i] && file_exists(files[i]))
            found = files[i];
        else
            memory_free(files[i]);
    return found;
}

/* The file that describes the model: used.yaml in the folder; above it, for a step folder or the
 * final_model of a run; or config.json. NULL: there is none. Rank 0; the caller frees it. */
static char *find_deck(const char *model) {
    char *plain = memory_string(model); /* without a slash at its end */
    for (size_t n = strlen(plain); n > 1 && plain[n - 1] == '/';) plain[--n] = 0;
    char *above = file_folder(plain), *sums = file_join(model, "checksums");
    int inside = file_exists(sums) || strcmp(file_basename(plain), "final_model") == 0;
    char *files[] = {file_join(model, "used.yaml"), inside ? file_join(above, "used.yaml") : NULL,
                     file_join(model, "config.json")};
    memory_free(plain);
    memory_free(above);
    memory_free(sums);
    return first_of(files, 3);
}

void trained_find(struct trained *t, const char *model, char *const *words, int n) {
    char *deck = NULL;
    memset(t, 0, sizeof *t);
    if (log_rank() == 0) {
        deck = find_deck(model);
        if (!deck)
            die_user(EXIT_DATA,
                     "%s: neither a run folder (it has no used.yaml) nor a step folder of one, nor "
                     "a Hugging Face folder",
                     model);
        t->weights = checkpoint_find_weights(model);
        if (!t->weights && file_has_suffix(deck, "config.json"))
            die_user(EXIT_DATA, "%s: a config.json without model.safetensors", model);
        if (!t->weights)
            die_user(EXIT_DATA,
                     "%s: a run folder with neither a final_model nor a checkpoint: it has not "
                     "saved its weights",
                     model);
    }
    user_agree();
    t->config = config_load_model(deck, words, n);
    memory_free(deck);
}

static void choose_grid(struct config *c, char *const *words, int n, int spread) {
    int ranks, E = (int)c->model.num_local_experts, ep = 1;
    for (int i = 0; i < n; i++)
        if (strncmp(words[i], "parallelism.", 12) == 0) return;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (c->backend == BACKEND_CUDA && c->engine.exchange == EXCHANGE_AUTO) spread = 0; /* untried */
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
    checkpoint_load_weights(t->model, t->weights);
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
