/* Time between places on a stream, told by the device: also where the work is recorded, and without
 * the host. */
#ifndef REGULON_KERNELS_SPAN_H
#define REGULON_KERNELS_SPAN_H
#include <cuda_runtime.h>
#ifdef __cplusplus
extern "C" {
#endif
/* Nanoseconds: since when, on the device, and a sum, which the host can read. */
struct span {
    unsigned long long *begin; /* [2] device memory, zero at the start */
    unsigned long long *sum;   /* [1] host memory that the device writes */
};

void span_begin(struct span s, cudaStream_t stream);
/* sum[0] += the time since span_begin. */
void span_end(struct span s, cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
