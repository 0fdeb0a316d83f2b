/* The products of all experts of a layer at once, on Hopper (sm_90a), in BF16 with sums in FP32.
 * How many rows an expert has only the device knows. kernels/README.md says how they work. */
#ifndef REGULON_KERNELS_GROUPED_GEMM_H
#define REGULON_KERNELS_GROUPED_GEMM_H
#include "gradient.h"
#include "grouped_sizes.h"
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif

/* What launches need of the device that is current. */
struct grouped;

/* NULL when this device, or this program, cannot: why says so (not to be freed). The caller closes
 * it. Allocates on the device for as long as it runs. */
struct grouped *grouped_open(const char **why);
void grouped_close(struct grouped *g);

/* Where the rows of an operand begin in an array of `rows` rows, base[0] on the device; base NULL:
 * at 0, of as many rows as there are. */
struct grouped_place {
    const int32_t *base;
    int rows;
};

/* The rows of the experts: expert e has offsets[e] .. offsets[e + 1] - 1, offsets[E + 1] on the
 * device and multiples of GROUPED_ROWS (NULL, in eight bits alone: E is 1, and all rows are its),
 * offsets[E] <= rows, E at most GROUPED_EXPERTS. Rows that pad an expert's are zero in every
 * operand, and p is finite there; so are then the results. Rows from offsets[E] on are neither read
 * nor written. x and z: places of the operands that have these names below, dz being z; all others
 * begin at 0. */
struct grouped_rows {
    const int32_t *offsets;
    int E, rows;
    int multiprocessors; /* to be used, 0: all of them */
    struct grouped_place x, z;
};

/* z[rows, 2F] = x[rows, D] up[e]^T, up[E, 2F, D], gate first; h[rows, F] = p silu(gate) up */
void grouped_up(struct grouped *g, void *z, void *h, const void *x, const void *up, const float *p,
                struct grouped_rows r, int D, int F, cudaStream_t stream);

/* y[rows, N] = h[rows, K] w[e]^T, w[E, N, K] */
void grouped_forward(struct grouped *g, void *y, const void *h, const void *w,
                     struct grouped_rows r, int N, int K, cudaStream_t stream);

/* dx[rows, K] = dz[rows, N] w[e], w[E, N, K] */
void grouped_backward(struct grouped *g, void *dx, const void *dz, const void *w,
                      struct grouped_rows r, int N, int K, cudaStream_t stream);

/* dh = dy[rows, D] down[e], down[E, D, F], which is not stored, and from it what swiglu.h says:
 * dz[rows, 2F], which may be z; h[rows, F] made again; dp[rows]. parts: grouped_parts(rows, F)
 * bytes of scratch. */
void grouped_down_backward(struct grouped *g, void *dz, void *h, float *dp, void *parts,
                           const void *dy, const void *z, const void *down, const float *p,
                           struct grouped_rows r, int D, int F, cudaStream_t stream);

/* dw[E, N, K] = or += dz[rows of e, N]^T x[rows of e, K]; an expert without rows gets zeros. Own
 * rows begin and end at multiples of GROUPED_LINES, at an address that is a multiple of 16. */
void grouped_weights(struct grouped *g, struct gradient dw, const void *dz, const void *x,
                     struct grouped_rows r, int N, int K, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
