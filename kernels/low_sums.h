/* What becomes of the values of a matrix in eight bits, in sums that go on. No arithmetic: known
 * where there is no CUDA, too. */
#ifndef REGULON_KERNELS_LOW_SUMS_H
#define REGULON_KERNELS_LOW_SUMS_H

/* Blocks of zeros count nowhere, so rows that pad others do not. */
enum low_sum {
    LOW_VALUES,     /* that are not 0 */
    LOW_NONFINITE,  /* of these, those of blocks with a NaN or an infinity, which count in none of
                       the following */
    LOW_UNDERFLOWS, /* that became 0 */
    LOW_LARGEST,    /* that became the largest magnitude of the format */
    LOW_ERROR2,     /* squared differences between values and what stands for them */
    LOW_SQUARES,    /* of the values */
    LOW_AMAX,    /* from here on not sums, but the largest so far, 0 before the first: magnitude */
    LOW_SCALE,   /* of a block */
    LOW_INVERSE, /* 1 / scale of a block, in FP64 */
    N_LOW_SUMS
};
#endif
