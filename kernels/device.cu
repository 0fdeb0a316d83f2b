#include "device.h"
#include <cstdio>
#include <cuda_runtime.h>

static __global__ void write_seven(int *out) {
    *out = 7;
}

int device_count(void) {
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

int device_describe(int i, struct device_info *info) {
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, i) != cudaSuccess) return 0;
    snprintf(info->name, sizeof info->name, "%s", p.name);
    const unsigned char *u = reinterpret_cast<const unsigned char *>(p.uuid.bytes);
    snprintf(info->uuid, sizeof info->uuid,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
    info->capability = p.major * 10 + p.minor;
    info->multiprocessors = p.multiProcessorCount;
    info->memory_bytes = p.totalGlobalMem;
    return 1;
}

const char *device_fails(int i) {
    int value = 0, *out = nullptr;
    cudaError_t status = cudaSetDevice(i);
    if (status == cudaSuccess) status = cudaMalloc(reinterpret_cast<void **>(&out), sizeof *out);
    if (status == cudaSuccess) {
        write_seven<<<1, 1>>>(out);
        status = cudaGetLastError();
    }
    if (status == cudaSuccess)
        status = cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost);
    cudaFree(out);
    (void)cudaGetLastError(); // what failed here must not show in a later check
    if (status != cudaSuccess) return cudaGetErrorString(status);
    return value == 7 ? nullptr : "a kernel did not write what it should";
}
