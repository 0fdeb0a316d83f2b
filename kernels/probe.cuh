/* Whether the code that runs on this device is the one for its own architecture. */
#ifndef REGULON_KERNELS_PROBE_CUH
#define REGULON_KERNELS_PROBE_CUH
#include <cuda_runtime.h>

/* probe, run by one thread, writes whether it has the instructions: its answer; 0, too, where it
 * cannot run. */
static inline int probed(void (*probe)(int *can)) {
    int can = 0, *there = nullptr;
    if (cudaMalloc(&there, sizeof *there) != cudaSuccess) return 0;
    probe<<<1, 1>>>(there);
    cudaMemcpy(&can, there, sizeof can, cudaMemcpyDeviceToHost);
    cudaFree(there);
    return cudaGetLastError() == cudaSuccess && can;
}
#endif
