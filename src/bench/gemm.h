/* `regulon bench gemm`: the products of the experts by the grouped kernels, beside cuBLASLt's. */
#ifndef REGULON_BENCH_GEMM_H
#define REGULON_BENCH_GEMM_H
#include "bench/operation.h"
#include <stdio.h>

/* What is asked for: routing and weights[E] as in routing.h; only products whose names contain
 * `only` (NULL: all); seconds of each measurement. */
struct gemm_wish {
    const char *routing, *only;
    const double *weights;
    double seconds;
};

/* A table on stdout and, where csv is not NULL, the same there: rates of rows that are of use, of
 * the grouped kernels, of one dense product of as many FLOPs, the same kind of result and the same
 * beta, without activation and with one result where E experts have E, and of a product an expert
 * with counts that the host knows; in turns. be: the CUDA backend on one rank, without work
 * reserved. */
void gemm_run(struct backend *be, const struct sizes *z, const struct gemm_wish *wish, FILE *csv);

/* The same in eight bits (fp8_block) from operands that are rounded already, beside a dense product
 * of cuBLASLt's with scales for as many elements, of all rows, and the grouped kernels in BF16;
 * then the passes that round. D and F are multiples of 128. */
void gemm_low_run(struct backend *be, const struct sizes *z, const struct gemm_wish *wish,
                  FILE *csv);
#endif
