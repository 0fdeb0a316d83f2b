/* Where a layer's rows of experts begin in arrays that all layers share. The rows of a layer follow
 * those of the one before; how many there are is known on the device alone. */
#ifndef REGULON_KERNELS_STASH_H
#define REGULON_KERNELS_STASH_H
#include <cuda_runtime.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
/* Numbers [1 + n] on the device: [0] of this rank's z, [1 + r] of the rows on rank r. Where the
 * rows of a rank pass its room they begin at 0, over those of other layers, as all do with `again`;
 * if they are this rank's, and not with `again`, overflow[0] becomes infinite. */
struct stash_place {
    const int32_t *before; /* ends of the layer before; NULL: this is the first */
    int32_t *base, *ends;  /* first row, and one past the last were there room; base NULL: the rows
                              are in no stash */
    double *overflow;      /* [1] */
    double *need;          /* [2] the largest end of this rank's rows, and of its z, so far */
    int rows, z;           /* room; z 0: the layer's z is elsewhere, and begins there at 0 */
    int again;
};

/* Of a rank that knows its own rows alone, n = 1: offsets[E] of them. */
void stash_place_own(struct stash_place p, const int32_t *offsets, int E, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
