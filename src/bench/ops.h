/* `regulon bench ops`: time, rate and error of each operation of the backend table. */
#ifndef REGULON_BENCH_OPS_H
#define REGULON_BENCH_OPS_H
#include "bench/operation.h"
#include <stdio.h>

/* Sizes of a kind of model: as it is used, and cut down for what the CPU must do too. */
struct shape_kind {
    const char *name;
    struct sizes full, cut;
};
extern const struct shape_kind shape_kinds[];
extern const size_t n_shape_kinds;

/* Asks the backend for what a model of these sizes would: for this work. */
struct work ops_work(const struct sizes *z);
void ops_reserve(struct backend *be, const struct sizes *z);

/* Opens the backend asked for once more. */
typedef struct backend *open_backend(void *context);

/* A table on stdout and, where csv is not NULL, the same there. be, which is closed here, serves
 * the errors; another one from `open`, with room for the full sizes, the times. Returns the number
 * of operations with a wrong result. */
int ops_run(struct backend *be, open_backend *open, void *context, const struct shape_kind *kind,
            FILE *csv);
#endif
