#include "span.h"
#include "check.h"

static __device__ __forceinline__ unsigned long long now() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

static __global__ void begin(span s) {
    *s.begin = now();
}

/* begin[1] is the sum on the device: host memory is only written. */
static __global__ void end(span s) {
    s.begin[1] += now() - s.begin[0];
    *s.sum = s.begin[1];
}

extern "C" void span_begin(struct span s, cudaStream_t stream) {
    begin<<<1, 1, 0, stream>>>(s);
    check(cudaGetLastError());
}

extern "C" void span_end(struct span s, cudaStream_t stream) {
    end<<<1, 1, 0, stream>>>(s);
    check(cudaGetLastError());
}
