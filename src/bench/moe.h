/* `regulon bench moe` and `mlp`: a mixture-of-experts layer, or its experts alone, forward and
 * backward, by each engine. */
#ifndef REGULON_BENCH_MOE_H
#define REGULON_BENCH_MOE_H
#include "bench/operation.h"
#include <stdio.h>

/* Opens a backend on one rank with an engine for the experts, whose products are fused or not. The
 * caller closes it. */
typedef struct backend *open_engine(void *context, enum experts_engine engine, int fused);

/* What is asked for: an engine, or AUTO, which is all that serve; engine.fused; routing as in
 * routing.h; numbers of experts; seconds of each measurement; the experts alone, or a whole layer.
 */
struct moe_wish {
    enum experts_engine engine;
    int fused;
    const char *routing;
    const int *experts; /* [n] */
    int n;
    double seconds;
    int alone;
};

/* A table on stdout and, where csv is not NULL, the same there, for each number of experts and
 * engine: times of the forward pass and of both, and their rates in FLOPs that are of use, 6 N A D
 * F and 18 N A D F; bytes that the experts write in both. Router, permutation and combination are
 * in a layer's times; of the experts alone the rows are laid out before; where these are grouped
 * and fused, the same without is one engine more. The engines take turns. Experts per token: z->A,
 * or as many as there are. be, which is closed here, tells what it is; others from `open` are
 * timed. */
void moe_run(struct backend *be, open_engine *open, void *context, const struct sizes *z,
             const struct moe_wish *wish, FILE *csv);

/* 1: the experts of a backend that work was reserved of have the grouped kernels. */
int moe_grouped(const struct backend *be);

/* The engine for the experts of a backend that work was reserved of, by engine.fused: "grouped",
 * "unfused", "cublaslt", "loop". */
const char *moe_engine(const struct backend *be, int fused);
#endif
