/* Which GPUs this process sees, and whether this binary has code for them. */
#ifndef REGULON_KERNELS_DEVICE_H
#define REGULON_KERNELS_DEVICE_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
struct device_info {
    char name[256];
    char uuid[37];  /* "8-4-4-4-12" hexadecimal digits */
    int capability; /* 90 for compute capability 9.0 */
    int multiprocessors;
    size_t memory_bytes;
};

/* Number of visible devices, 0 without a driver or a device. */
int device_count(void);

/* Fills *info for visible device i; 1 on success, 0 (and *info untouched) when the device cannot be
 * asked. */
int device_describe(int i, struct device_info *info);

/* NULL when a trivial kernel of this binary runs on device i, which is then the current one; else
 * CUDA's text for what failed. It makes the device's context: only for a device that is to be used.
 */
const char *device_fails(int i);
#ifdef __cplusplus
}
#endif
#endif
