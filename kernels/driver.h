/* Functions of the driver, which no program is linked with; C and C++. */
#ifndef REGULON_KERNELS_DRIVER_H
#define REGULON_KERNELS_DRIVER_H
#include <cuda_runtime_api.h>
#include <stddef.h>

/* Its function of this name as CUDA 12.0 has it, NULL: it has none. */
static inline void *driver_function(const char *name) {
    void *f = NULL;
    enum cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t status =
        cudaGetDriverEntryPointByVersion(name, &f, 12000, cudaEnableDefault, &found);
#else
    cudaError_t status = cudaGetDriverEntryPoint(name, &f, cudaEnableDefault, &found);
#endif
    if (status == cudaSuccess && found == cudaDriverEntryPointSuccess) return f;
    (void)cudaGetLastError();
    return NULL;
}
#endif
