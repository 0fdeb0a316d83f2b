/* `regulon bench gemm`: the products of the experts by the grouped kernels, beside cuBLASLt's. */
#ifndef REGULON_BENCH_GEMM_H
#define REGULON_BENCH_GEMM_H
#include "bench/operation.h"
#include <stdio.h>

/* A table on stdout and, where csv is not NULL, the same there: rates of rows that are of use, of
 * the grouped kernels, of one dense product of as many FLOPs, the same kind of result and the same
 * beta, and of a product an expert with counts that the host knows; each for `seconds`, in turns.
 * weights[E] as in routing.h. be: the CUDA backend on one rank, without work reserved. */
void gemm_run(struct backend *be, const struct sizes *z, const char *routing, const double *weights,
              double seconds, FILE *csv);
#endif
