/* Who is let in by the watchdog of rank 0, and by which addresses it is reached. */
#include "config.h"
#include "base/memory.h"
#include "grid/watch.h"
#include "tap.h"
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { N = 3 };

/* The watch of rank 0 of three, before the others have come. */
static void open_watch(struct watch *w) {
    memset(w, 0, sizeof *w);
    w->n_ranks = w->n = N;
    w->limit = INT64_C(1000000000) * 100;
    w->seen = memory_alloc_array(N, sizeof *w->seen);
    w->wires = memory_alloc_array(N, sizeof *w->wires);
    w->polls = memory_alloc_array(N + WATCH_MOST_STRANGERS + 2, sizeof *w->polls);
    for (int i = 0; i < WATCH_MOST_STRANGERS; i++) w->strangers[i].fd = -1;
    for (int i = 0; i < N; i++) {
        w->wires[i].fd = -1;
        w->seen[i] = (struct watched){.rank = i, .code = -1, .heard = watch_now(w)};
        w->seen[i].mark.time = w->seen[i].heard;
    }
    w->seen[0].pid = 1;
    atomic_store(&w->time, watch_now(w));
    atomic_store(&w->leaving, -1);
    atomic_store(&w->dying, -1);
    w->end_code = -1;
    w->wake = eventfd(0, EFD_NONBLOCK);
    w->listener = wire_listen(&w->place);
}

static void close_watch(struct watch *w) {
    uint64_t one = 1;
    atomic_store(&w->closing, 1);
    atomic_fetch_add(&w->asked, 1);
    tap_ok(write(w->wake, &one, sizeof one) == sizeof one && pthread_join(w->thread, NULL) == 0,
           "the thread ends");
    for (int i = 0; i < N; i++) wire_close(&w->wires[i]);
    close(w->wake);
    memory_free(w->polls);
    memory_free(w->wires);
    memory_free(w->seen);
}

static int comes_in(const struct wire_place *p, int rank, int same_host, struct wire *wire) {
    struct wire_message hello = {.rank = rank, .pid = 100 + rank, .host = "node7"};
    return wire_connect(wire, p, same_host, &hello);
}

int main(int argc, char **argv) {
    static struct watch w;
    struct wire wire, one, two, stranger;
    struct wire_message m;
    char text[1024];
    tap_open(&argc, &argv);
    open_watch(&w);
    struct wire_place place = w.place, wrong = w.place;
    wire_describe(text, sizeof text, &place);
    tap_ok(w.listener >= 0 && strstr(text, ", port "), "it listens: %s", text);
    tap_ok(pthread_create(&w.thread, NULL, watch_run, &w) == 0, "a thread");
    wrong.token[1] ^= 1;
    tap_ok(!comes_in(&wrong, 1, 1, &wire), "one with another token is sent away");
    tap_ok(!comes_in(&place, 0, 1, &wire) && !comes_in(&place, N, 1, &wire) &&
               !comes_in(&place, -1, 1, &wire),
           "so are ranks that there are not");
    tap_ok(comes_in(&place, 1, 1, &one), "rank 1 comes in");
    tap_ok(!comes_in(&place, 1, 1, &wire), "but once");
    /* one who says little, and stays */
    struct wire_place first = place;
    first.n = 1;
    memset(&stranger, 0, sizeof stranger);
    stranger.fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 loopback = {.sin6_family = AF_INET6,
                                    .sin6_addr = in6addr_loopback,
                                    .sin6_port = htons((uint16_t)place.port)};
    if (connect(stranger.fd, (struct sockaddr *)&loopback, sizeof loopback) == 0)
        tap_ok(write(stranger.fd, "GET /", 5) == 5, "a stranger says little and stays");
    if (place.n > 0)
        tap_ok(comes_in(&first, 2, 0, &two), "rank 2 comes in by an address for other hosts");
    else
        tap_ok(comes_in(&place, 2, 1, &two), "rank 2 comes in; this host has no other address");
    while (wire_receive(&two, &m) == 0) usleep(1000);
    tap_ok(m.kind == WIRE_BEAT && m.rank == 0 && m.code == -1, "and hears a beat");
    tap_ok(!comes_in(&place, 2, 1, &wire), "when all have come the door is closed");
    close_watch(&w);
    int got, byes = 0;
    while ((got = wire_receive(&one, &m)) >= 0) {
        byes += got == 1 && m.kind == WIRE_BYE;
        usleep(got ? 0 : 1000);
    }
    tap_ok(byes == 1, "the others are told of a good end");
    wire_close(&one);
    wire_close(&two);
    wire_close(&stranger);
    return tap_close();
}
