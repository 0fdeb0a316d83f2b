/* A ring of batches: the thread fills them in order, loader_next lends the oldest and takes back
 * the one lent before. Batch i of this rank always lies in slot i mod n_slots. */
#include "config.h"
#include "data/loader.h"
#include "base/die.h"
#include "base/memory.h"
#include "base/random.h"
#include "data/mixture.h"
#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

struct loader {
    /* the order: constant after loader_open */
    struct stream **streams; /* [n_sources] */
    int64_t *n_chunks;       /* [n_sources] */
    struct mixture *mixture;
    uint64_t seed;
    int64_t grad_acc_steps, rank, n_ranks, first_step;

    /* the ring: the counts and `stop` change under the lock */
    struct batch **slots; /* [n_slots] */
    int64_t n_slots, made, taken;
    int lent; /* batch taken - 1 is with the caller */
    int stop;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

int loader_capacity(const struct config *c) {
    int64_t n = c->dataset.token_micro_batch_size;
    if (n == 0)
        n = (c->dataset.micro_batch_size > 0 ? c->dataset.micro_batch_size : 1) *
            c->dataset.max_seq_length;
    assert(n <= INT_MAX); /* check_config and strands_open refuse more */
    return (int)n;
}

int64_t loader_chunks(const struct stream *s, int capacity) {
    return stream_tokens(s) / capacity + (stream_tokens(s) % capacity > 0);
}

void loader_fill_chunk(const struct stream *s, int64_t chunk, struct batch *b) {
    batch_clear(b);
    int64_t at = chunk * b->capacity, n;
    do {
        int32_t *tokens = b->tokens + b->n, *labels = b->targets + b->n;
        float *weights = b->weights + b->n;
        n = stream_read(s, at + b->n, b->capacity - b->n, tokens, labels, weights);
        batch_append(b, tokens, labels, weights, (int)n);
    } while (n > 0);
}

/* Micro-batch i of this rank, counted from first_step. */
static void fill(const struct loader *l, int64_t i, struct batch *b) {
    int64_t step = l->first_step + i / l->grad_acc_steps, micro_step = i % l->grad_acc_steps, index;
    int64_t g = (step * l->grad_acc_steps + micro_step) * l->n_ranks + l->rank;
    int source = mixture_source(l->mixture, g, &index);
    int64_t epoch = index / l->n_chunks[source], place = index % l->n_chunks[source];
    uint64_t key = random_bits(l->seed, RANDOM_ORDER, (uint64_t)source << 48 | (uint64_t)epoch);
    uint64_t chunk = random_permute(key, (uint64_t)place, (uint64_t)l->n_chunks[source]);
    loader_fill_chunk(l->streams[source], (int64_t)chunk, b);
}

static void *read_ahead(void *arg) {
    struct loader *l = arg;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->stop && l->made - l->taken + l->lent == l->n_slots)
            pthread_cond_wait(&l->changed, &l->lock);
        if (l->stop) break;
        int64_t i = l->made;
        pthread_mutex_unlock(&l->lock);
        fill(l, i, l->slots[i % l->n_slots]);
        pthread_mutex_lock(&l->lock);
        l->made++;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Signals are for the thread that looks at their flags. */
static void start_thread(struct loader *l) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&l->thread, NULL, read_ahead, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) die("the loader's thread cannot be started: %s", strerror(error));
}

struct loader *loader_open(const struct config *c, struct stream *const *streams,
                           const double *weights, int n_sources, int rank, int n_ranks,
                           int64_t first_step) {
    struct loader *l = memory_alloc(sizeof *l);
    int capacity = loader_capacity(c);
    l->streams = memory_alloc_array((size_t)n_sources, sizeof *l->streams);
    l->n_chunks = memory_alloc_array((size_t)n_sources, sizeof *l->n_chunks);
    for (int i = 0; i < n_sources; i++) {
        l->streams[i] = streams[i];
        l->n_chunks[i] = loader_chunks(streams[i], capacity);
        assert(l->n_chunks[i] > 0);
    }
    l->mixture = mixture_new(weights, n_sources);
    l->seed = c->seed;
    l->grad_acc_steps = c->grad_acc_steps;
    l->rank = rank;
    l->n_ranks = n_ranks;
    l->first_step = first_step;
    l->n_slots = c->dataset.read_ahead + 1; /* one is with the caller */
    l->slots = memory_alloc_array((size_t)l->n_slots, sizeof *l->slots);
    for (int64_t i = 0; i < l->n_slots; i++) l->slots[i] = batch_new(capacity);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    start_thread(l);
    return l;
}

const struct batch *loader_next(struct loader *l) {
    pthread_mutex_lock(&l->lock);
    l->lent = 0;
    pthread_cond_broadcast(&l->changed);
    while (l->made == l->taken) pthread_cond_wait(&l->changed, &l->lock);
    const struct batch *b = l->slots[l->taken % l->n_slots];
    l->taken++;
    l->lent = 1;
    pthread_mutex_unlock(&l->lock);
    return b;
}

double loader_epoch(const struct loader *l, int64_t step) {
    int64_t draws = mixture_draws(l->mixture, 0, step * l->grad_acc_steps * l->n_ranks);
    return (double)draws / (double)l->n_chunks[0];
}

void loader_close(struct loader *l) {
    if (l == NULL) return;
    pthread_mutex_lock(&l->lock);
    l->stop = 1;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    for (int64_t i = 0; i < l->n_slots; i++) batch_free(l->slots[i]);
    memory_free(l->slots);
    memory_free(l->streams);
    memory_free(l->n_chunks);
    mixture_free(l->mixture);
    memory_free(l);
}
