#include "config.h"
#include "trial.h"
#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include <math.h>
#include <string.h>
#include <xxhash.h>

struct trial_room {
    void *p;
    size_t bytes;
};

/* Every room that model_new asks the backend for is listed, so that it can be poisoned. */
enum { MOST_ROOMS = 512 };
static struct trial *opening;
static void *(*backend_alloc)(struct backend *be, size_t bytes);

static void *listed_alloc(struct backend *be, size_t bytes) {
    void *p = backend_alloc(be, bytes);
    if (opening->n_rooms < MOST_ROOMS)
        opening->rooms[opening->n_rooms++] = (struct trial_room){p, bytes};
    return p;
}

void trial_poison(struct trial *t) {
    for (int i = 0; i < t->n_rooms; i++) {
        void *p = t->rooms[i].p;
        if (p != t->m->weights && p != t->m->bias) memset(p, 0xff, t->rooms[i].bytes);
    }
}

void trial_open(struct trial *t, MPI_Comm comm, int dp, int ep, const char *deck) {
    char *text =
        memory_format("%s\nparallelism.dp_size: %d\nparallelism.ep_size: %d\n", deck, dp, ep);
    memset(t, 0, sizeof *t);
    t->c = config_parse(text, "trial");
    grid_open(&t->g, comm, dp, ep);
    t->be = backend_open("cpu", &t->g);
    t->rooms = memory_alloc_array(MOST_ROOMS, sizeof *t->rooms);
    opening = t, backend_alloc = t->be->alloc;
    t->be->alloc = listed_alloc;
    t->m = model_new(t->c, t->be, (int)t->c->dataset.token_micro_batch_size, /*with_gradients=*/1);
    t->be->alloc = backend_alloc;
    model_init(t->m, t->c->seed);
    trial_poison(t);
    t->o = optimizer_new(t->m);
    memory_free(text);
}

void trial_close(struct trial *t) {
    optimizer_free(t->o);
    model_free(t->m);
    backend_close(t->be);
    grid_close(&t->g);
    config_free(t->c);
    memory_free(t->rooms);
}

uint64_t trial_hash(const struct trial *t) {
    size_t n = t->o->n_state * sizeof(float),
           bias = (size_t)t->m->s.L * (size_t)t->m->s.E * sizeof(float);
    XXH64_hash_t h = XXH3_64bits(t->m->weights, t->m->params->size * t->be->real_bytes);
    h = XXH3_64bits_withSeed(t->o->m, n, h);
    h = XXH3_64bits_withSeed(t->o->v, n, h);
    return XXH3_64bits_withSeed(t->m->bias, bias, h);
}

void trial_remove_run(const char *folder) {
    int n;
    int64_t *list = checkpoint_list(folder, &n);
    for (int i = 0; i < n; i++) {
        char *path = checkpoint_folder(folder, list[i]);
        file_remove_folder(path);
        memory_free(path);
    }
    memory_free(list);
    file_remove_folder(folder);
}

double trial_error(double value, double reference) {
    if (value == reference) return 0;
    double e = fabs(value / reference - 1);
    return isnan(e) ? INFINITY : e;
}
