/* Gate and up of all experts of a layer at once in MXFP8, on Blackwell (sm_100a), with the
 * activation, the probability and the rounding of what the next product takes. Compiled, never run.
 */
#ifndef REGULON_KERNELS_MXFP8_UP_H
#define REGULON_KERNELS_MXFP8_UP_H
#include "mxfp8_scales.h"
#include "real.h"
#ifdef __cplusplus
extern "C" {
#endif

struct mxfp8_up;

/* For this process's device; NULL and why[0], a constant, where it cannot run. */
struct mxfp8_up *mxfp8_up_open(const char **why);
void mxfp8_up_close(struct mxfp8_up *u); /* NULL is allowed */

/* Of the experts' rows, of which expert e has offsets[e] .. offsets[e + 1] - 1 (on the device,
 * multiples of 128, offsets[E] is `rows`): z[rows, 2F] = x[rows, D] up[e]^T, BF16, gate first, and
 * h[rows, F] = p silu(gate) up of these, in MXFP8 along rows. x by row and up[E, 2F, D] as
 * mxfp8_pack.h makes them. D and F are multiples of 128. */
void mxfp8_up_run(struct mxfp8_up *u, void *z, struct mxfp8_matrix h, struct mxfp8_matrix x,
                  struct mxfp8_matrix up, const float *p, const int32_t *offsets, int E, int rows,
                  int D, int F, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
