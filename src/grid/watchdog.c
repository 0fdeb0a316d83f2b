#include "config.h"
#include "grid/watchdog.h"
#include "base/die.h"
#include "base/log.h"
#include "base/memory.h"
#include "grid/ranges.h"
#include "grid/watch.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

/* One a process, as the main thread is whose marks it holds: so that a mark is one line in the code
 * that does the work, without a handle passed down to it. NULL: no watch. */
static struct watch *watch;

/* ---- marks ---- */

static void set(atomic_int *where, int value) {
    atomic_store_explicit(where, value, memory_order_relaxed);
}

static void moved_to(int64_t place) {
    atomic_store_explicit(&watch->order, place, memory_order_relaxed);
    atomic_store_explicit(&watch->time, watch_now(watch), memory_order_relaxed);
}

static int64_t place(void) {
    return atomic_load_explicit(&watch->order, memory_order_relaxed);
}

void watchdog_part(enum watchdog_part part, int64_t step) {
    ranges_part(part, step);
    if (!watch) return;
    int earlier = atomic_load(&watch->part);
    if (earlier == WATCHDOG_STEP) set(&watch->first, 0);
    set(&watch->part, (int)part);
    set(&watch->phase, WATCHDOG_NONE);
    set(&watch->layer, -1);
    set(&watch->waits, WAITS_FOR_NOTHING);
    if (step >= 0) atomic_store_explicit(&watch->step, step, memory_order_relaxed);
    moved_to(((place() >> 32) + 1) << 32);
}

void watchdog_phase(enum watchdog_phase phase, int layer) {
    ranges_phase(phase, layer);
    if (!watch) return;
    set(&watch->phase, (int)phase);
    set(&watch->layer, layer);
    set(&watch->waits, WAITS_FOR_NOTHING);
    moved_to(place() + 1);
}

void watchdog_exchange(int waits) {
    ranges_exchange(waits);
    if (!watch) return;
    set(&watch->waits, waits ? WAITS_FOR_RANKS : WAITS_FOR_NOTHING);
    moved_to(place() + 1);
}

void watchdog_gpu(int waits) {
    if (watch) set(&watch->waits, waits ? WAITS_FOR_GPU : WAITS_FOR_NOTHING);
}

void watchdog_progress(void) {
    if (watch) moved_to(place());
}

/* ---- requests ---- */

/* Wakes the thread and waits until it has answered, a second at most. */
static void ask(struct watch *w) {
    uint64_t one = 1;
    unsigned mine = atomic_fetch_add(&w->asked, 1) + 1;
    if (write(w->wake, &one, sizeof one) != sizeof one) return;
    for (int i = 0; i < 1000 && (int)(atomic_load(&w->answered) - mine) < 0; i++) usleep(1000);
}

/* This rank ends by leave() or die(): without a word that would look like its death. Before a die()
 * goes on to MPI_Abort rank 0 has time to see whether another rank's death is behind it. */
static void tell(int code, int dies) {
    if (!watch || pthread_equal(pthread_self(), watch->thread)) return;
    if (dies) {
        atomic_store(&watch->dying, code);
    } else {
        atomic_store(&watch->leaving, code);
        watchdog_part(WATCHDOG_LEAVING, -1);
    }
    ask(watch);
    if (dies) usleep(1500000);
}

/* A communication library may abort the process when it meets the death of another rank first, and
 * assert does it. Only what a signal handler may call. */
static struct sigaction abort_before;
static void on_abort(int signal_number) {
    (void)signal_number;
    if (!watch || pthread_equal(pthread_self(), watch->thread)) return;
    atomic_store(&watch->aborted, 1);
    tell(EXIT_INTERNAL, /*dies=*/1);
    sleep(2); /* the thread ends the process */
}

static void catch_abort(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_abort;
    sigaction(SIGABRT, &action, &abort_before);
}

static void start(struct watch *w) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
    if (pthread_create(&w->thread, NULL, watch_run, w) != 0) die("cannot start a thread");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void stop(struct watch *w) {
    atomic_store(&w->closing, 1);
    ask(w);
    pthread_join(w->thread, NULL);
}

/* ---- opening ---- */

static struct watch *new_watch(const struct grid *g, int64_t timeout_s, watchdog_note *note,
                               void *context) {
    struct watch *w = memory_alloc(sizeof *w);
    int lowest;
    MPI_Allreduce(&g->rank, &lowest, 1, MPI_INT, MPI_MIN, g->node);
    w->rank = g->rank, w->n_ranks = g->n_ranks, w->world = g->world;
    w->note = note, w->context = context;
    w->speaks = g->node_rank == (lowest == 0);
    w->limit = timeout_s * 1000000000;
    gethostname(w->host, sizeof w->host - 1);
    w->n = g->rank == 0 ? g->n_ranks : 2, w->self = g->rank != 0;
    w->seen = memory_alloc_array((size_t)w->n, sizeof *w->seen);
    w->wires = memory_alloc_array((size_t)w->n, sizeof *w->wires);
    w->polls = memory_alloc_array((size_t)w->n + WATCH_MOST_STRANGERS + 2, sizeof *w->polls);
    w->listener = -1, w->end_code = -1;
    for (int i = 0; i < WATCH_MOST_STRANGERS; i++) w->strangers[i].fd = -1;
    for (int i = 0; i < w->n; i++) {
        w->wires[i].fd = -1;
        w->seen[i] = (struct watched){.rank = i, .code = -1, .heard = watch_now(w)};
        w->seen[i].mark.time = w->seen[i].heard, w->seen[i].mark.layer = -1;
    }
    struct watched *me = &w->seen[w->self];
    me->rank = g->rank, me->pid = (int)getpid();
    memcpy(me->host, w->host, sizeof me->host);
    atomic_store(&w->leaving, -1);
    atomic_store(&w->dying, -1);
    atomic_store(&w->layer, -1);
    atomic_store(&w->first, 1);
    atomic_store(&w->time, watch_now(w));
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->wake < 0) die("eventfd: %s", strerror(errno));
    return w;
}

/* Rank 0 needs a descriptor for each rank. */
static void allow_descriptors(int n) {
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_cur >= (rlim_t)n + 256) return;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

/* Brings the ranks in touch; the thread of rank 0 runs then. Refuses where one cannot come. */
static void meet(struct watch *w, const struct grid *g) {
    if (w->rank == 0) {
        allow_descriptors(w->n_ranks);
        w->listener = wire_listen(&w->place);
        if (w->listener < 0)
            die_user(EXIT_CONFIG,
                     "watchdog.timeout_s: rank 0 on %s cannot listen (%s); 0 is no watchdog",
                     w->host, strerror(errno));
        start(w);
    }
    user_agree();
    MPI_Bcast(&w->place, sizeof w->place, MPI_BYTE, 0, g->world);
    int same_host = strcmp(w->host, w->place.host) == 0, lost = w->n_ranks, first;
    struct wire_message hello = {.rank = w->rank, .pid = (int)getpid()};
    memcpy(hello.host, w->host, sizeof hello.host);
    if (w->rank != 0 && !wire_connect(&w->wires[0], &w->place, same_host, &hello)) lost = w->rank;
    MPI_Allreduce(&lost, &first, 1, MPI_INT, MPI_MIN, g->world);
    if (first == w->n_ranks) return;
    MPI_Bcast(hello.host, sizeof hello.host, MPI_CHAR, first, g->world);
    if (w->rank == 0) {
        char where[1024];
        wire_describe(where, sizeof where, &w->place);
        stop(w);
        die_user(EXIT_CONFIG,
                 "watchdog.timeout_s: rank %d on %s cannot reach rank 0 over TCP (%s); let it, or "
                 "set 0 for no watchdog",
                 first, hello.host, where);
    }
    user_agree();
}

void watchdog_open(const struct grid *g, int64_t timeout_s, watchdog_note *note, void *context) {
    assert(!watch);
    if (timeout_s == 0) return;
    struct watch *w = new_watch(g, timeout_s, note, context);
    if (w->n_ranks > 1) meet(w, g);
    if (w->rank != 0) {
        w->seen[0].pid = w->place.pid;
        memcpy(w->seen[0].host, w->place.host, sizeof w->place.host);
    }
    if (w->n_ranks == 1 || w->rank != 0) start(w);
    watch = w;
    die_tell(tell);
    catch_abort();
}

void watchdog_close(void) {
    struct watch *w = watch;
    if (!w) return;
    MPI_Barrier(w->world);
    watch = NULL;
    die_tell(NULL);
    sigaction(SIGABRT, &abort_before, NULL);
    stop(w);
    for (int i = 0; i < w->n; i++) wire_close(&w->wires[i]);
    close(w->wake);
    memory_free(w->polls);
    memory_free(w->wires);
    memory_free(w->seen);
    memory_free(w);
}
