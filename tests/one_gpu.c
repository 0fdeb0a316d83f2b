/* Preloaded, it lets ranks share a GPU: each has one of its own for the program, which then does
 * not refuse them, and is a host of its own for NCCL, which does not refuse them either and goes
 * over sockets. The driver gives the GPU to the ranks in turns: what waits for another rank waits
 * for milliseconds, and nothing is timed. Peer memory is memory of that GPU. For tests/gpus.sh. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pid_t me;

__attribute__((constructor)) static void one_gpu(void) {
    char host[24];
    me = getpid();
    snprintf(host, sizeof host, "%ld", (long)me);
    setenv("NCCL_HOSTID", host, 1);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    cudaError_t (*real)(struct cudaDeviceProp *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "cudaGetDeviceProperties");
    cudaError_t status = real ? real(p, device) : cudaErrorNotSupported;
    memcpy(p->uuid.bytes, &me, sizeof me);
    return status;
}
