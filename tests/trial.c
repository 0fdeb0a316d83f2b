#include "config.h"
#include "tap.h"
#include "trial.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "model/stage.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

struct trial_room {
    void *p;
    size_t bytes;
};

/* Every room that model_new asks the backend for is listed, so that it can be poisoned; not what
 * the backend asks itself for in `reserve`: there are tables among it. */
enum { MOST_ROOMS = 512 };
static struct trial *opening;
static void *(*backend_alloc)(struct backend *be, size_t bytes);
static void (*backend_reserve)(struct backend *be, struct work w);

static void *listed_alloc(struct backend *be, size_t bytes) {
    void *p = backend_alloc(be, bytes);
    if (opening->n_rooms < MOST_ROOMS)
        opening->rooms[opening->n_rooms++] = (struct trial_room){p, bytes};
    return p;
}

static void unlisted_reserve(struct backend *be, struct work w) {
    be->alloc = backend_alloc;
    backend_reserve(be, w);
    be->alloc = listed_alloc;
}

void trial_poison(struct trial *t) {
    char byte;
    t->be->download(t->be, &byte, t->m->sums, 1);
    MPI_Barrier(t->g.world); /* other ranks may have read from these rooms until now */
    for (int i = 0; i < t->n_rooms; i++) {
        void *p = t->rooms[i].p;
        if (p == t->m->weights || p == t->m->masters || p == t->m->bias) continue;
        void *poison = memory_alloc(t->rooms[i].bytes);
        memset(poison, 0xff, t->rooms[i].bytes);
        t->be->upload(t->be, p, poison, t->rooms[i].bytes);
        memory_free(poison);
    }
    model_forget(t->m);
}

void trial_gradient(const struct model *m, int i, float *whole) {
    const struct share *s = &m->shares[i];
    MPI_Comm group = share_group(m->be->grid, &m->params->list[i]);
    int size, at = 0;
    m->be->download(m->be, whole + s->first, model_own_grad(m, i), s->n * sizeof *whole);
    if (s->n == m->params->list[i].n) return;
    MPI_Comm_size(group, &size);
    int *counts = memory_alloc_array((size_t)size * 2, sizeof *counts), *places = counts + size;
    for (int r = 0; r < size; at += counts[r++]) counts[r] = (int)s->counts[r], places[r] = at;
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, counts, places, MPI_FLOAT, group);
    memory_free(counts);
}

size_t trial_bytes(const struct trial *t) {
    size_t sum = 0;
    for (int i = 0; i < t->n_rooms; i++) sum += t->rooms[i].bytes;
    return sum;
}

struct backend *trial_backend(const struct grid *g) {
    const char *name = getenv("TEST_BACKEND"), *fp32 = getenv("TEST_FP32");
    const char *attention = getenv("TEST_ATTENTION"), *experts = getenv("TEST_EXPERTS");
    const char *unit = getenv("TEST_ROW_UNIT"), *exchange = getenv("TEST_EXCHANGE");
    const char *stash = getenv("TEST_STASH"), *collectives = getenv("TEST_COLLECTIVES");
    struct backend_options o = {.fp32 = fp32 != NULL};
    if (experts && strcmp(experts, "unfused") == 0)
        o.unfused = 1;
    else if (experts)
        o.experts = strcmp(experts, "grouped") == 0 ? EXPERTS_GROUPED : EXPERTS_CUBLASLT;
    if (exchange) o.exchange = strcmp(exchange, "peer") == 0 ? EXCHANGE_PEER : EXCHANGE_NCCL;
    if (collectives)
        o.collectives = strcmp(collectives, "peer") == 0 ? EXCHANGE_PEER : EXCHANGE_NCCL;
    if (attention) o.attention = strcmp(attention, "own") == 0 ? ATTENTION_OWN : ATTENTION_CUDNN;
    struct backend *be = backend_open(name ? name : "cpu", g, &o);
    if (unit) be->row_unit = atoi(unit);
    if (stash) be->stashes = g->ep_size > 1;
    return be;
}

struct config *trial_golden_config(const char *folder, const char *deck, const struct grid *g) {
    char *path = memory_format("./golden.%ld.yaml.tmp", (long)getpid()); /* rank 0's is read */
    char *words[] = {memory_format("model.config=%s/config.json", folder),
                     memory_format("parallelism.dp_size=%d", g->dp_size),
                     memory_format("parallelism.ep_size=%d", g->ep_size)};
    if (g->rank == 0 && !file_write_atomic(path, deck, strlen(deck))) die("cannot write %s", path);
    struct config *c = config_load_all(path, words, 3);
    if (g->rank == 0) unlink(path);
    for (int i = 0; i < 3; i++) memory_free(words[i]);
    memory_free(path);
    return c;
}

int trial_serves(const struct backend *be, const struct config *c, const char *folder) {
    if (strcmp(be->name, "cuda") != 0 || c->model.head_dim % 8 == 0) return 1;
    tap_note("%s: heads of %lld are not for a GPU", file_basename(folder),
             (long long)c->model.head_dim);
    return 0;
}

void trial_open(struct trial *t, MPI_Comm comm, int dp, int ep, const char *deck) {
    trial_open_on(t, comm, dp, ep, deck, NULL);
}

void trial_open_on(struct trial *t, MPI_Comm comm, int dp, int ep, const char *deck,
                   void (*prepare)(struct backend *be)) {
    char *text =
        memory_format("%s\nparallelism.dp_size: %d\nparallelism.ep_size: %d\n", deck, dp, ep);
    memset(t, 0, sizeof *t);
    t->c = config_parse(text, "trial");
    grid_open(&t->g, comm, dp, ep);
    t->be = trial_backend(&t->g);
    if (prepare) prepare(t->be);
    t->rooms = memory_alloc_array(MOST_ROOMS, sizeof *t->rooms);
    opening = t, backend_alloc = t->be->alloc, backend_reserve = t->be->reserve;
    t->be->alloc = listed_alloc, t->be->reserve = unlisted_reserve;
    t->m = model_new(t->c, t->be, (int)t->c->dataset.token_micro_batch_size, /*with_gradients=*/1);
    t->be->alloc = backend_alloc, t->be->reserve = backend_reserve;
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

static XXH64_hash_t hash_room(const struct trial *t, const void *p, size_t bytes, XXH64_hash_t h) {
    void *copy = memory_alloc(bytes);
    t->be->download(t->be, copy, p, bytes);
    h = XXH3_64bits_withSeed(copy, bytes, h);
    memory_free(copy);
    return h;
}

uint64_t trial_hash(const struct trial *t) {
    const struct model *m = t->m;
    size_t state = m->sizes.moments * sizeof(float);
    XXH64_hash_t h = hash_room(t, m->weights, m->sizes.weights * t->be->real_bytes, 0);
    if (m->masters) h = hash_room(t, m->masters, m->sizes.masters * sizeof(float), h);
    h = hash_room(t, t->o->m, state, h);
    h = hash_room(t, t->o->v, state, h);
    return hash_room(t, m->bias, (size_t)m->s.L * (size_t)m->s.E * sizeof(float), h);
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
