#include "config.h"
#include "base/io.h"
#include "base/die.h"
#include "base/memory.h"
#include <pthread.h>
#include <signal.h>

struct entry {
    struct entry *next;
    io_job *job;
    void *context;
};

/* The fourth global that `base` has: the thread is the process's, as HDF5 is. */
static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t posted, idle;
    struct entry *first, **last;
    int running; /* the thread exists */
    int busy;    /* a slice is being done */
    int ending;
} io = {.lock = PTHREAD_MUTEX_INITIALIZER,
        .posted = PTHREAD_COND_INITIALIZER,
        .idle = PTHREAD_COND_INITIALIZER,
        .last = &io.first};

static void append(struct entry *e) {
    e->next = NULL;
    *io.last = e;
    io.last = &e->next;
}

static struct entry *take(void) {
    struct entry *e = io.first;
    io.first = e->next;
    if (!io.first) io.last = &io.first;
    return e;
}

static void *work(void *unused) {
    (void)unused;
    pthread_mutex_lock(&io.lock);
    for (;;) {
        while (!io.first && !io.ending) pthread_cond_wait(&io.posted, &io.lock);
        if (!io.first) break;
        struct entry *e = take();
        io.busy = 1;
        pthread_mutex_unlock(&io.lock);
        int more = e->job(e->context);
        pthread_mutex_lock(&io.lock);
        io.busy = 0;
        if (more)
            append(e);
        else
            memory_free(e);
        if (!io.first) pthread_cond_broadcast(&io.idle);
    }
    pthread_mutex_unlock(&io.lock);
    return NULL;
}

void io_open(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
    io.ending = 0;
    if (pthread_create(&io.thread, NULL, work, NULL) != 0) die("cannot start a thread");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    io.running = 1;
}

void io_post(io_job *job, void *context) {
    if (!io.running) {
        while (job(context)) {
        }
        return;
    }
    struct entry *e = memory_alloc(sizeof *e);
    e->job = job, e->context = context;
    pthread_mutex_lock(&io.lock);
    append(e);
    pthread_cond_signal(&io.posted);
    pthread_mutex_unlock(&io.lock);
}

void io_wait(void) {
    pthread_mutex_lock(&io.lock);
    while (io.running && (io.first || io.busy)) pthread_cond_wait(&io.idle, &io.lock);
    pthread_mutex_unlock(&io.lock);
}

void io_close(void) {
    if (!io.running) return;
    pthread_mutex_lock(&io.lock);
    io.ending = 1;
    pthread_cond_signal(&io.posted);
    pthread_mutex_unlock(&io.lock);
    pthread_join(io.thread, NULL);
    io.running = 0;
}
