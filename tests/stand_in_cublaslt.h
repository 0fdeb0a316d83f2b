/* Products of MXFP8 in place of cuBLASLt's, which are for compute capability 10.0: from codes and
 * scales as cuBLAS documents them, in memory that the host reaches, with what the descriptors say.
 * Others are the library's. Linked before it. */
#ifndef REGULON_TESTS_STAND_IN_CUBLASLT_H
#define REGULON_TESTS_STAND_IN_CUBLASLT_H

extern struct stand_in_lt {
    int on;      /* else the library is asked */
    int refuses; /* there is no algorithm */
    /* algorithms that it was asked for, products, and of both those that cuBLAS would not take */
    int asked, products, wrong;
} stand_in_lt;
#endif
