/* A user's mistake is found on rank 0 while the others wait in a broadcast of the verdict; so they
 * leave with the same code, by the ordinary way out, and no launcher adds its own text. */
#include "config.h"
#include "base/die.h"
#include "base/log.h"
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static void (*tell_of_end)(int code, int dies);

void die_tell(void (*tell)(int code, int dies)) {
    tell_of_end = tell;
}

/* Ranks that MPI runs on; 1 before MPI_Init and after MPI_Finalize. */
static int ranks_running(void) {
    int on = 0, off = 0, n = 1;
    MPI_Initialized(&on);
    MPI_Finalized(&off);
    if (on && !off) MPI_Comm_size(MPI_COMM_WORLD, &n);
    return n;
}

/* Ends all ranks. A launcher that is told so may drop what it has not read of stderr yet. */
static noreturn void abort_all(int code) {
    enum { READ_US = 200000 };
    int on = 0;
    if (tell_of_end) tell_of_end(code, /*dies=*/1);
    MPI_Initialized(&on);
    if (on) {
        usleep(READ_US);
        MPI_Abort(MPI_COMM_WORLD, code);
    }
    _exit(code);
}

noreturn void die_at(const char *file, int line, int code, const char *format, ...) {
    va_list args;
    fflush(stdout);
    fprintf(stderr, "[%d][%.3f] %s:%d: ", log_rank(), log_seconds(), file, line);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    fflush(stderr);
    abort_all(code);
}

noreturn void die_user(int code, const char *format, ...) {
    va_list args;
    fflush(stdout);
    fputs("regulon: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    fflush(stderr);
    if (ranks_running() > 1) {
        if (log_rank() != 0) abort_all(code);
        MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    leave(code);
}

void user_agree(void) {
    if (ranks_running() == 1) return;
    int code = EXIT_FINISHED;
    MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (code != EXIT_FINISHED) leave(code);
}

/* A fifth global: whoever ends the program does not know what is open. */
static struct {
    void (*job)(void *context);
    void *context;
} first;

void before_leave(void (*job)(void *context), void *context) {
    first.job = job, first.context = context;
}

noreturn void leave(int code) {
    int on = 0, off = 0;
    if (first.job) first.job(first.context);
    fflush(NULL);
    if (tell_of_end) tell_of_end(code, /*dies=*/0);
    MPI_Initialized(&on);
    MPI_Finalized(&off);
    if (on && !off) MPI_Finalize();
    _exit(code);
}
