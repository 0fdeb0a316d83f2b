/* Stands in for libcuda.so.1, the driver's library, where there is no GPU. The few calls with which
 * cuDNN loads what it compiled and asks how many blocks fit do nothing and succeed; the others that
 * it looks for fail. Enough to make plans, not to run them. Built as a library of its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 801, NOT_FOUND = 500, REGISTERS = 4 };
static int object;

#define FAILS(name)           \
    int name(void);           \
    int name(void) {          \
        return NOT_SUPPORTED; \
    }
#define GIVES_OBJECT(name)             \
    int name(void **to);               \
    int name(void **to) {              \
        return *to = &object, SUCCESS; \
    }
#define GIVES_NUMBER(name, value)      \
    int name(int *to);                 \
    int name(int *to) {                \
        return *to = (value), SUCCESS; \
    }
#define GIVES_ATTRIBUTE(name)                               \
    int name(int *to, int which);                           \
    int name(int *to, int which) {                          \
        return *to = which == REGISTERS ? 168 : 0, SUCCESS; \
    }
#define GIVES_TEXT(name)                               \
    int name(int error, const char **to);              \
    int name(int error, const char **to) {             \
        return (void)error, *to = "stand-in", SUCCESS; \
    }

GIVES_NUMBER(cuDriverGetVersion, 13000)
GIVES_NUMBER(cuOccupancyMaxActiveBlocksPerMultiprocessor, 1)
GIVES_NUMBER(cuOccupancyMaxActiveClusters, 66)
GIVES_OBJECT(cuLibraryLoadData)
GIVES_OBJECT(cuLibraryGetKernel)
GIVES_OBJECT(cuKernelGetFunction)
GIVES_OBJECT(cuModuleLoadData)
GIVES_OBJECT(cuModuleGetFunction)
GIVES_ATTRIBUTE(cuFuncGetAttribute)
GIVES_ATTRIBUTE(cuKernelGetAttribute)
GIVES_TEXT(cuGetErrorString)
GIVES_TEXT(cuGetErrorName)

FAILS(cuInit)
FAILS(cuCtxGetCurrent)
FAILS(cuCtxGetLimit)
FAILS(cuCtxPopCurrent)
FAILS(cuCtxPushCurrent)
FAILS(cuDeviceGet)
FAILS(cuDeviceGetCount)
FAILS(cuKernelSetAttribute)
FAILS(cuLaunchCooperativeKernel)
FAILS(cuLaunchKernel)
FAILS(cuLaunchKernelEx)
FAILS(cuLibraryLoadFromFile)
FAILS(cuLibraryUnload)
FAILS(cuLinkAddData)
FAILS(cuLinkComplete)
FAILS(cuLinkCreate)
FAILS(cuLinkDestroy)
FAILS(cuOccupancyMaxPotentialClusterSize)
FAILS(cuStreamGetCtx)

int cuGetProcAddress(const char *name, void **to, int version, unsigned long flags);
int cuGetProcAddress(const char *name, void **to, int version, unsigned long flags) {
    (void)version, (void)flags;
    *to = dlsym(RTLD_DEFAULT, name);
    return *to ? SUCCESS : NOT_FOUND;
}

int cuGetProcAddress_v2(const char *name, void **to, int version, unsigned long flags, int *status);
int cuGetProcAddress_v2(const char *name, void **to, int version, unsigned long flags,
                        int *status) {
    if (status) *status = 0;
    return cuGetProcAddress(name, to, version, flags);
}
