/* Several ways to do the same work, timed against each other on one device. */
#ifndef REGULON_BENCH_CONTEST_H
#define REGULON_BENCH_CONTEST_H
#include "backend/backend.h"

struct contender {
    struct backend *be; /* whose clock tells; two may share the device */
    void (*run)(void *context);
    void *context;
};

/* Median seconds of a call of each of n <= CONTEST_MOST. Blocks of calls of `seconds` /
 * CONTEST_ROUNDS take turns, in reversed order every other round, so that all meet the same clocks;
 * a first round warms the device up and is left out. What is timed must repeat; its data must be
 * larger than the caches where that matters. */
enum { CONTEST_MOST = 4, CONTEST_ROUNDS = 4 };
void contest(const struct contender *list, int n, double seconds, double *result);
#endif
