/* The operations of the backend table as `bench ops` tries them: data, one call, and what the call
 * must at least move or compute. */
#ifndef REGULON_BENCH_OPERATION_H
#define REGULON_BENCH_OPERATION_H
#include "bench/pair.h"

/* Letters as in model/shape.h. */
struct sizes {
    int N, D, F, V, E, A, H, G, K;
    int document;  /* tokens of each, the last one shorter */
    int side;      /* of the square matrices whose product is the ceiling */
    size_t copied; /* numbers whose copy is the ceiling */
};

enum { MOST_ARRAYS = 20 };

/* What one call works on. */
struct data {
    struct sides *s;
    struct sizes z;
    struct pair p[MOST_ARRAYS];
    int n;
    unsigned results; /* bit k: array k is compared */
    int32_t *cu_seqlens;
    struct moe *moe[2];
    size_t R; /* rows of the experts, those that pad included */
};

struct operation {
    const char *name;
    void (*make)(struct data *d);
    void (*run)(struct data *d, struct backend *be, int side);
    /* Bytes that it must read and write whatever its method, or FLOPs that are of use; r: bytes of
     * a real_t. */
    double (*cost)(const struct sizes *z, double r);
    int computes; /* cost is FLOPs */
};

/* Copies and products of plain matrices come first: what the others are relative to. */
extern const struct operation ops_dense[], ops_experts[];
extern const size_t n_ops_dense, n_ops_experts;

/* ---- for make ---- */

/* Each adds the next array: what is read, read and changed, or written. */
void data_read(struct data *d, enum pair_type type, size_t n, float scale);
void data_change(struct data *d, enum pair_type type, size_t n, float scale);
void data_write(struct data *d, enum pair_type type, size_t n);
void data_ints(struct data *d, const int32_t *values, size_t n);
void data_random_ints(struct data *d, size_t n, int below);
#endif
