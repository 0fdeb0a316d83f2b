#include "config.h"
#include "base/log.h"
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

/* Two of the three globals that the conventions allow: the log's rank and the start time. */
static int rank, debug;
static struct timespec start;

void log_open(int my_rank) {
    rank = my_rank;
    if (start.tv_sec == 0) clock_gettime(CLOCK_MONOTONIC, &start);
}

int log_rank(void) {
    return rank;
}

double log_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return start.tv_sec == 0
               ? 0
               : (double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec);
}

void log_set_debug(int on) {
    debug = on;
}

/* One write per line, so that lines of several ranks do not mix. */
static void emit(const char *module, const char *format, va_list args) {
    char text[4096];
    vsnprintf(text, sizeof text, format, args);
    fprintf(stderr, "[%d][%.3f] %s: %s\n", rank, log_seconds(), module, text);
}

#define LOG_FUNCTION(name, condition)                        \
    void name(const char *module, const char *format, ...) { \
        if (!(condition)) return;                            \
        va_list args;                                        \
        va_start(args, format);                              \
        emit(module, format, args);                          \
        va_end(args);                                        \
    }
LOG_FUNCTION(log_info, rank == 0)
LOG_FUNCTION(log_warn, 1)
LOG_FUNCTION(log_debug, debug)
