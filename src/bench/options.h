/* The words of `regulon bench`. */
#ifndef REGULON_BENCH_OPTIONS_H
#define REGULON_BENCH_OPTIONS_H
#include "bench/ops.h"

enum { OPTIONS_NUMBERS = 32 };

struct options {
    enum what { OPS, GEMM, MLP, MOE, COMM, STEP } what;
    const struct shape_kind *shape; /* NULL: not given */
    int64_t tokens;                 /* 0: the shape's; not with comm */
    const char *csv;                /* NULL: none */
    const char *routing, *only;
    double seconds;               /* of a measurement */
    int list[OPTIONS_NUMBERS], n; /* of experts, or with comm of tokens */
    const char *deck;             /* of step */
    char **words;                 /* [n_words] key=value; the caller frees the array */
    int n_words;
};

extern const char options_help[];

const char *options_name(enum what what); /* "ops" */

/* Of the words after `bench`; die_user (64) where they are wrong. On every rank. */
struct options options_read(int argc, char **argv);

/* NULL: there is none of this name. */
const struct shape_kind *options_shape(const char *name);
#endif
