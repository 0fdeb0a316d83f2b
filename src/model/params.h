/* The table of parameters: name, shape, where it lies, who holds it, how it starts, whether it
 * decays. From it come the arenas, the counts, the optimiser's shards and the Hugging Face names.
 */
#ifndef REGULON_MODEL_PARAMS_H
#define REGULON_MODEL_PARAMS_H
#include "grid/grid.h"
#include "model/shape.h"
#include <stddef.h>
#include <stdint.h>

enum param_kind {
    PARAM_DENSE, /* on every rank; gradients are summed over the world */
    PARAM_EXPERT /* first dimension E, E / ep_size of them on a rank; gradients are summed over dp
                  */
};
enum param_group {
    GROUP_MATRIX,
    GROUP_NORM,
    GROUP_EMBEDDING
}; /* what weight decay distinguishes */

/* What begins in an arena begins at a multiple of so many elements. */
enum { PARAMS_ALIGN = 64 };

struct param {
    char name[80]; /* as transformers 5 names it; experts fused, gate before up */
    enum param_kind kind;
    enum param_group group;
    int n_dims;
    int64_t dims[3];    /* global */
    float std;          /* initial: normal(0, std); 0: ones */
    size_t offset, n;   /* this rank's part in the arena of weights, in elements */
    int joined;         /* it lies right behind the one before: they are one matrix */
    int64_t rows, cols; /* that part as a matrix: all dimensions but the last, the last */
    int64_t first_row;  /* its first row in the global matrix */
};

/* One layer's parameters, as indices into the table. q, k and v lie one behind the other: one [(H +
 * 2G) K, D] matrix from q's offset. */
struct layer_params {
    int norm1, q, k, v, o, norm2, router, up, down;
};

struct params {
    int n;
    struct param *list; /* dense ones first */
    int n_dense;
    size_t size;           /* elements of the arena of weights */
    int embed, norm, head; /* head is embed when tied */
    struct layer_params *layers;
};

/* The table for rank (dp_rank, ep_rank) of the grid. The caller frees it. */
struct params *params_new(const struct shape *s, const struct grid *g, const struct config *c);
/* The same of the whole model, as one rank has it. */
struct params *params_new_whole(const struct shape *s, const struct config *c);
void params_free(struct params *p);

/* Parameters over the grid: all, and those at work on one token, which meets A of each layer's
 * experts. */
double params_count(const struct params *p);
double params_active(const struct params *p, int A);

/* Rows [*first, *last) of a tensor of `rows` rows that rank `rank` of `size` holds when it is
 * sharded: evenly, at multiples of 128 rows where it has them. A tensor with fewer rows than ranks
 * is replicated: all rows for all. */
void params_shard(int64_t rows, int rank, int size, int64_t *first, int64_t *last);
int params_replicated(int64_t rows, int size); /* 1 if params_shard gives all rows to every rank */

/* 1 if one of the words, shell patterns with blanks between them, fits the parameter's name (NULL:
 * none does). params_unmatched: a word that fits no parameter, a new string, or NULL. */
int params_match(const struct param *t, const char *words);
char *params_unmatched(const struct params *p, const char *words);

/* Initial values [first, first + n) of this rank's part of parameter i, FP32: a pure function of
 * (seed, tensor, global index). */
void params_init(const struct params *p, int i, uint64_t seed, size_t first, size_t n,
                 float *values);
#endif
