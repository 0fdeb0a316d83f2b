/* The watchdog's thread. Only watchdog.c includes this. */
#ifndef REGULON_GRID_WATCH_H
#define REGULON_GRID_WATCH_H
#include "grid/wire.h"
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { WATCH_MOST_STRANGERS = 32 };

struct watch {
    int rank, n_ranks;
    MPI_Comm world; /* for the main thread */
    int speaks;     /* this rank, not 0, prints what becomes of rank 0 */
    int64_t limit;
    char host[64];
    watchdog_note *note;
    void *context;

    /* from the main thread: its mark, and what it asks for */
    _Atomic int64_t step, order, time;
    atomic_int part, phase, layer, waits, first;
    atomic_int aborted;          /* dying by abort() */
    atomic_int leaving, dying;   /* codes; -1: it does not */
    atomic_int closing;          /* the watch ends */
    atomic_uint asked, answered; /* requests of the main thread, and those the thread has seen */
    int wake;                    /* an eventfd */
    _Atomic int64_t stood_still; /* ns in which the process did not run */
    pthread_t thread;

    /* of the thread: rank 0 lists all ranks, itself first; the others list rank 0 and themselves */
    int n, self;
    struct watched *seen;                        /* [n] */
    struct wire *wires;                          /* [n] */
    struct pollfd *polls;                        /* [n + WATCH_MOST_STRANGERS + 2] */
    struct wire_place place;                     /* rank 0; with its token */
    int listener;                                /* -1: every rank has come */
    struct wire strangers[WATCH_MOST_STRANGERS]; /* they have not yet said hello */
    int64_t since[WATCH_MOST_STRANGERS];
    int64_t looked_at;    /* the clock, when the thread last ran */
    int end_code;         /* all ranks are to end with it, from end_at on; -1: not yet */
    int noted, note_code; /* the note is made, with this; the text stays to the end */
    const char *note_text;
    atomic_int note_done;
    int end_i; /* the first that has aborted, which is then named; -1: nobody is */
    int64_t end_at;
};

/* ns; it stands still when the process does. */
int64_t watch_now(struct watch *w);

/* The thread: runs until `closing`, or ends the process. */
void *watch_run(void *watch);
#endif
