#include "config.h"
#include "tap.h"
#include "base/log.h"
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int count, failed;

void tap_open(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    log_open(rank);
    setvbuf(stdout, NULL, _IOLBF, 0);
}

void tap_ok(int ok, const char *format, ...) {
    int all;
    MPI_Allreduce(&ok, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    count++;
    failed += !all;
    if (log_rank() != 0) return;
    va_list args;
    va_start(args, format);
    printf("%sok %d - ", all ? "" : "not ", count);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

void tap_note(const char *format, ...) {
    if (log_rank() != 0) return;
    va_list args;
    va_start(args, format);
    printf("# ");
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

void tap_skip_all(const char *why) {
    if (log_rank() == 0) printf("1..0 # SKIP %s\n", why);
    fflush(stdout);
    MPI_Finalize();
    exit(0);
}

int tap_wanted(int argc, char **argv, int number, int n) {
    int wanted = argc == 1;
    for (int i = 1; i < argc; i++) {
        char *end;
        long given = strtol(argv[i], &end, 10);
        if (*end || given < 1 || given > n) {
            if (log_rank() == 0) printf("Bail out! '%s' is no round from 1 to %d\n", argv[i], n);
            fflush(stdout);
            MPI_Finalize();
            exit(1);
        }
        wanted |= given == number;
    }
    return wanted;
}

int tap_close(void) {
    if (log_rank() == 0) printf("1..%d\n", count);
    fflush(stdout);
    MPI_Finalize();
    return failed != 0;
}
