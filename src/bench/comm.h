/* `regulon bench comm`: what ranks send to each other. */
#ifndef REGULON_BENCH_COMM_H
#define REGULON_BENCH_COMM_H
#include "bench/operation.h"
#include <stdio.h>

/* Opens a backend on all ranks with a way for tokens between them, or for collectives beside other
 * work. The caller closes it. */
typedef struct backend *open_exchange(void *context, enum exchange_engine way);

/* What is asked for: a way, or AUTO, which is all that serve, for tokens and for collectives beside
 * other work; routing as in routing.h; numbers of tokens of a rank; seconds of each measurement. */
struct comm_wish {
    enum exchange_engine way, beside;
    const char *routing;
    const int *tokens; /* [n] */
    int n;
    double seconds;
};

/* Tables on stdout and, where csv is not NULL, the first there too: the exchange of a layer's
 * tokens and of their gradients, by number of tokens and way, then collectives by size, and those
 * of parallelism.shard full beside other work by way and size. Times are of the slowest rank; rates
 * are of what a rank sends to others, in one direction. be, which is closed here, is of all ranks
 * as one ep group, and tells what it is; others from `open` and `open_beside` are timed. Returns
 * the number of wrong results. Collective over world; rank 0 writes. */
int comm_run(struct backend *be, open_exchange *open, open_exchange *open_beside, void *context,
             const struct sizes *z, const struct comm_wish *wish, FILE *csv);
#endif
