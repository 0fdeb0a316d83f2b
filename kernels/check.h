/* What happens when a call of CUDA's fails. */
#ifndef REGULON_KERNELS_CHECK_H
#define REGULON_KERNELS_CHECK_H
#ifdef __cplusplus
extern "C" {
#endif
/* Called with the place and the library's text; does not return. */
typedef void kernel_failure(const char *file, int line, const char *text);

/* The process's handler; without one the text goes to stderr and the process aborts. */
void kernel_on_failure(kernel_failure *handler);
void kernel_failed(const char *file, int line, const char *text);
#ifdef __cplusplus
}
/* in .cu: after every launch check(cudaGetLastError()), around every call of the runtime */
#define check(call)                                                                               \
    do {                                                                                          \
        cudaError_t status = (call);                                                              \
        if (status != cudaSuccess) kernel_failed(__FILE__, __LINE__, cudaGetErrorString(status)); \
    } while (0)
#endif
#endif
