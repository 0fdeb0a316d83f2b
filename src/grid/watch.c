/* One loop serves rank 0 and the others: they differ in whom they list and what they judge. */
#include "config.h"
#include "grid/watch.h"
#include "base/die.h"
#include "base/log.h"
#include <signal.h>
#include <stdio.h>
#include <stdnoreturn.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define AN_ERROR "a rank has ended with an error, which it printed"
/* After a die(), GRACE_S: another rank's death may be behind it. ABORT_S more: its MPI_Abort ends
 * all with its code, under most launchers. */
enum { STRANGER_S = 5, GRACE_S = 1, ABORT_S = 2, MOST_TEXT = 600 };

/* ---- the clock ---- */

static int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

int64_t watch_now(struct watch *w) {
    return clock_ns() - atomic_load_explicit(&w->stood_still, memory_order_relaxed);
}

/* The thread wakes at least once a beat; when it has not, the process did not run. */
static int64_t look_at_clock(struct watch *w) {
    int64_t now = watch_now(w), slept = now - w->looked_at;
    if (w->looked_at && slept > 3 * SECOND) {
        atomic_fetch_add(&w->stood_still, slept - SECOND);
        now = watch_now(w);
    }
    return w->looked_at = now;
}

/* ---- the end ---- */

/* The process that gives no sign, if it runs here: it cannot leave by itself. */
static void kill_silent(const struct watch *w, int pid, const char *host) {
    char path[64], mine[512] = "", its[512] = "";
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    if (pid > 0 && strcmp(host, w->host) == 0 &&
        readlink("/proc/self/exe", mine, sizeof mine - 1) > 0 &&
        readlink(path, its, sizeof its - 1) > 0 && strcmp(mine, its) == 0)
        kill(pid, SIGKILL);
}

static void print(const char *text) {
    char line[MOST_TEXT + 100];
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    int n =
        snprintf(line, sizeof line, "[%d][%.3f] watchdog: %s\n", log_rank(), log_seconds(), text);
    if (poll(&out, 1, 1000) == 1 && write(STDERR_FILENO, line, (size_t)n) < 0) return;
}

static void *call_note(void *watch) {
    struct watch *w = watch;
    w->note(w->context, w->note_code, atomic_load(&w->step), w->note_text);
    atomic_store(&w->note_done, 1);
    return NULL;
}

/* Once. What the note writes to may hang, as all else may: it has a thread of its own, and a
 * second. */
static void make_note(struct watch *w, int code, const char *text) {
    pthread_t thread;
    if (!w->note || w->noted) return;
    w->noted = 1, w->note_code = code, w->note_text = text;
    if (pthread_create(&thread, NULL, call_note, w) != 0) return;
    for (int i = 0; i < 100 && !atomic_load(&w->note_done); i++) usleep(10000);
}

/* Ends this rank, and the silent one (NULL: nobody is) on this host. A launcher ends the others by
 * signals when it sees the first one gone, and reports those: so all go at about the same time. */
noreturn static void end_here(const struct watch *w, int code, const struct watched *silent) {
    if (silent) kill_silent(w, silent->pid, silent->host);
    usleep(50000);
    _exit(code);
}

/* Rank 0: ends all ranks; `named` NULL: somebody has said why. */
static void end_all(struct watch *w, int code, enum cause cause, const struct watched *named,
                    int64_t now) {
    struct wire_message m = {.kind = WIRE_VERDICT, .code = code, .cause = (int)cause};
    char seen[MOST_TEXT] = AN_ERROR, text[MOST_TEXT + 50];
    if (named) {
        m.rank = named->rank, m.pid = named->pid;
        memcpy(m.host, named->host, sizeof m.host);
        judge_text(seen, sizeof seen, named, cause, now);
    }
    if (named) {
        snprintf(text, sizeof text, "%s; all ranks end with code %d", seen, code);
        print(text);
    }
    make_note(w, code, seen);
    for (int i = 0; i < w->n; i++) wire_send(&w->wires[i], &m);
    end_here(w, code, named && cause == IS_SILENT ? named : NULL);
}

/* Another rank: rank 0 is lost. */
static void end_alone(struct watch *w, enum cause cause, int64_t now) {
    char seen[MOST_TEXT], text[MOST_TEXT + 50];
    int dying = atomic_load(&w->dying);
    judge_text(seen, sizeof seen, &w->seen[0], cause, now);
    snprintf(text, sizeof text, "%s; rank %d and the others end with code %d", seen, w->rank,
             EXIT_INTERNAL);
    if (w->speaks && dying < 0) print(text);
    end_here(w, dying < 0 ? EXIT_INTERNAL : dying, cause == IS_SILENT ? &w->seen[0] : NULL);
}

/* ---- what is said ---- */

static void see_self(struct watch *w, int64_t now) {
    struct watched *me = &w->seen[w->self];
    me->heard = now;
    me->code = atomic_load(&w->dying) >= 0 ? atomic_load(&w->dying) : atomic_load(&w->leaving);
    me->mark = (struct mark){.step = atomic_load(&w->step),
                             .order = atomic_load(&w->order),
                             .time = atomic_load(&w->time),
                             .part = atomic_load(&w->part),
                             .phase = atomic_load(&w->phase),
                             .layer = atomic_load(&w->layer),
                             .waits = atomic_load(&w->waits),
                             .first = atomic_load(&w->first)};
}

static void say(struct watch *w, enum wire_kind kind, enum cause cause, int64_t now) {
    const struct watched *me = &w->seen[w->self];
    struct wire_message m = {.kind = (int)kind,
                             .rank = w->rank,
                             .code = me->code,
                             .cause = (int)cause,
                             .mark = me->mark};
    m.mark.time = now - m.mark.time;
    for (int i = 0; i < w->n; i++) wire_send(&w->wires[i], &m);
}

/* ---- what is heard ---- */

/* The end of rank i by die() or abort(): the others follow, unless what it saw was the death of
 * another, which is named instead. */
static void end_soon(struct watch *w, int i, int code, enum cause cause, int64_t now) {
    w->seen[i].code = code;
    if (w->end_code >= 0) return;
    w->end_code = code;
    w->end_i = cause == HAS_ABORTED ? i : -1;
    w->end_at = now + (w->n_ranks > 1 ? GRACE_S * SECOND : 0);
}

static void end_by_verdict(const struct watch *w, const struct wire_message *m) {
    struct watched named = {.pid = m->pid};
    memcpy(named.host, m->host, sizeof named.host);
    end_here(w, m->code, m->cause == IS_SILENT ? &named : NULL);
}

static void hear(struct watch *w, int i, const struct wire_message *m, int64_t now) {
    struct watched *s = &w->seen[i];
    s->heard = now;
    switch (m->kind) {
    case WIRE_BEAT:
        s->code = m->code;
        s->mark = m->mark;
        s->mark.time = now - m->mark.time;
        break;
    case WIRE_DYING:
        end_soon(w, i, m->code, (enum cause)m->cause, now);
        break;
    case WIRE_BYE:
        s->presence = ENDED;
        break;
    case WIRE_VERDICT:
        end_by_verdict(w, m);
    default:
        break;
    }
}

static void hear_from(struct watch *w, int i, int64_t now) {
    struct watched *s = &w->seen[i];
    struct wire_message m;
    int got;
    while ((got = wire_receive(&w->wires[i], &m)) == 1) hear(w, i, &m, now);
    if (got == 0) return;
    wire_close(&w->wires[i]);
    if (s->presence == PRESENT) s->presence = s->code < 0 ? GONE : ENDED;
}

/* A rank's hello gives it its place in the list; who says anything else is sent away. */
static void hear_stranger(struct watch *w, struct wire *stranger, int64_t since, int64_t now) {
    struct wire_message m;
    int got = wire_receive(stranger, &m);
    if (got == 0 && now - since < STRANGER_S * SECOND) return;
    if (got == 1 && m.kind == WIRE_HELLO && memcmp(m.token, w->place.token, sizeof m.token) == 0 &&
        m.rank > 0 && m.rank < w->n && w->wires[m.rank].fd < 0 && w->seen[m.rank].pid == 0) {
        struct watched *s = &w->seen[m.rank];
        s->heard = now, s->pid = m.pid;
        memcpy(s->host, m.host, sizeof s->host - 1);
        m.kind = WIRE_WELCOME;
        wire_send(stranger, &m);
        w->wires[s->rank] = *stranger;
        stranger->fd = -1;
        return;
    }
    wire_close(stranger);
}

static void receive_strangers(struct watch *w, int64_t now) {
    int missing = 0;
    for (int i = 0; i < WATCH_MOST_STRANGERS; i++) {
        if (w->strangers[i].fd < 0 && wire_accept(&w->strangers[i], w->listener)) w->since[i] = now;
        if (w->strangers[i].fd >= 0) hear_stranger(w, &w->strangers[i], w->since[i], now);
    }
    for (int i = 1; i < w->n; i++) missing += w->seen[i].pid == 0;
    if (missing) return;
    for (int i = 0; i < WATCH_MOST_STRANGERS; i++) wire_close(&w->strangers[i]);
    close(w->listener);
    w->listener = -1;
}

static void listen_to_all(struct watch *w, int64_t now) {
    for (int i = 0; i < w->n; i++)
        if (w->wires[i].fd >= 0) hear_from(w, i, now);
    if (w->listener >= 0) receive_strangers(w, now);
}

/* Until there is news, or the next beat is due. With many ranks there is always news: all that
 * comes in 10 ms is heard at once. */
static void wait_for_news(struct watch *w, int64_t until_ns) {
    enum { MANY_RANKS = 64 };
    int n = 0;
    uint64_t count;
    w->polls[n++] = (struct pollfd){.fd = w->wake, .events = POLLIN};
    for (int i = 0; i < w->n; i++)
        if (w->wires[i].fd >= 0)
            w->polls[n++] = (struct pollfd){.fd = w->wires[i].fd, .events = POLLIN};
    if (w->listener >= 0) {
        w->polls[n++] = (struct pollfd){.fd = w->listener, .events = POLLIN};
        for (int i = 0; i < WATCH_MOST_STRANGERS; i++)
            if (w->strangers[i].fd >= 0)
                w->polls[n++] = (struct pollfd){.fd = w->strangers[i].fd, .events = POLLIN};
    }
    if (w->n > MANY_RANKS) usleep(10000);
    poll(w->polls, (nfds_t)n, until_ns > 0 ? (int)(until_ns / 1000000) + 1 : 0);
    if (w->polls[0].revents && read(w->wake, &count, sizeof count) < 0) return;
}

static void decide(struct watch *w, int64_t now) {
    struct verdict v = judge_presence(w->seen, w->n, now, w->limit);
    int dies = w->end_code >= 0 && now >= w->end_at,
        late = dies && now >= w->end_at + ABORT_S * SECOND;
    if (w->rank != 0) {
        if (v.cause != FINE && v.i == 0) end_alone(w, v.cause, now);
        if (late) end_here(w, w->end_code, NULL);
        return;
    }
    if (v.cause == FINE) v = judge_progress(w->seen, w->n, now, w->limit);
    if (v.cause != FINE) end_all(w, EXIT_INTERNAL, v.cause, &w->seen[v.i], now);
    if (dies && w->end_i >= 0) end_all(w, w->end_code, HAS_ABORTED, &w->seen[w->end_i], now);
    if (dies && !w->noted) make_note(w, w->end_code, AN_ERROR);
    if (late) end_all(w, w->end_code, FINE, NULL, now);
}

/* What the main thread asks for. */
static void answer(struct watch *w, int64_t now) {
    unsigned asked = atomic_load(&w->asked);
    int dying = atomic_load(&w->dying);
    if (asked == atomic_load(&w->answered)) return;
    see_self(w, now);
    say(w, WIRE_BEAT, FINE, now);
    if (dying >= 0) {
        enum cause cause = atomic_load(&w->aborted) ? HAS_ABORTED : FINE;
        end_soon(w, w->self, dying, cause, now);
        say(w, WIRE_DYING, cause, now);
    }
    if (atomic_load(&w->closing)) say(w, WIRE_BYE, FINE, now);
    atomic_store(&w->answered, asked);
}

void *watch_run(void *watch) {
    struct watch *w = watch;
    int64_t beat_at = 0;
    for (;;) {
        int64_t now = look_at_clock(w);
        answer(w, now);
        if (atomic_load(&w->closing)) return NULL;
        if (now >= beat_at) {
            see_self(w, now);
            say(w, WIRE_BEAT, FINE, now);
            beat_at = now + JUDGE_BEAT;
        }
        listen_to_all(w, now);
        decide(w, now);
        int64_t next = w->end_code >= 0 && w->end_at > now ? w->end_at : beat_at;
        wait_for_news(w, (next < beat_at ? next : beat_at) - watch_now(w));
    }
}
