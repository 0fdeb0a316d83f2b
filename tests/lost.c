/* lost WHAT RANK TIMEOUT_S: a small job under the watchdog in which one rank is lost, as WHAT says.
 * Run by watchdog.sh. */
#include "config.h"
#include "base/die.h"
#include "base/log.h"
#include "base/text.h"
#include "grid/watchdog.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(void *context, int code, int64_t step, const char *seen) {
    dprintf(STDOUT_FILENO, "%s: code %d, step %lld, %s\n", (const char *)context, code,
            (long long)step, seen);
}

/* A barrier that leaves the cores to others. */
static void wait_for_all(void) {
    MPI_Request request;
    int done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (!done) {
        usleep(1000);
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
}

/* Steps of an ordinary run, for a while. */
static void work(int seconds) {
    for (int64_t step = 1; step <= 20 * seconds; step++) {
        watchdog_part(WATCHDOG_STEP, step);
        for (int l = 0; l < 4; l++) watchdog_phase(WATCHDOG_FORWARD, l);
        watchdog_phase(WATCHDOG_REDUCE, -1);
        usleep(50000);
        wait_for_all();
    }
}

/* One rank works alone for longer than the limit, the others wait for it. */
static void work_alone(int seconds) {
    for (int i = 0; i < 10 * seconds; i++) {
        usleep(100000);
        watchdog_progress();
    }
}

int main(int argc, char **argv) {
    struct grid g;
    int level, rank, n_ranks;
    int64_t lost = 0, timeout_s = 0;
    char name[] = "note";
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    log_open(rank);
    if (argc != 4 || !text_to_int(argv[2], &lost) || !text_to_int(argv[3], &timeout_s))
        leave(EXIT_USAGE);
    grid_open(&g, MPI_COMM_WORLD, n_ranks, 1);
    watchdog_open(&g, timeout_s, note, name);
    const char *what = strcmp(argv[1], "load") == 0 || rank == lost ? argv[1] : "";
    if (strcmp(what, "load") == 0) sleep((unsigned)timeout_s + 3); /* within ten times the limit */
    work(2);
    watchdog_part(WATCHDOG_STEP, 1000);
    watchdog_phase(WATCHDOG_BACKWARD, 7);
    if (strcmp(what, "hang") == 0) pause();
    if (strcmp(what, "exit") == 0) _exit(3);
    if (strcmp(what, "abort") == 0) abort();
    if (strcmp(what, "die") == 0) die_io("the disk is full");
    if (strcmp(what, "leave") == 0) leave(EXIT_DATA);
    if (strcmp(what, "alone") == 0) work_alone((int)timeout_s + 3);
    watchdog_exchange(1);
    wait_for_all();
    watchdog_exchange(0);
    watchdog_close();
    grid_close(&g);
    leave(EXIT_FINISHED);
}
