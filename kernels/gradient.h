/* Where products leave the gradient of weights w[n, N, K], in FP32: n N rows of K numbers. */
#ifndef REGULON_KERNELS_GRADIENT_H
#define REGULON_KERNELS_GRADIENT_H
#include <stddef.h>

struct gradient {
    float *whole; /* [n, N, K] */
    int add;      /* to what is there; else it is overwritten */
    /* Rows first .. first + rows - 1 go to own[rows, K] instead, and what whole has of them stays as
     * it is. NULL: none do. Only where whole is overwritten. */
    float *own;
    int own_add; /* as add */
    size_t first, rows;
};

static inline struct gradient gradient_whole(float *whole, int add) {
    struct gradient g = {whole, add, NULL, 0, 0, 0};
    return g;
}
#endif
