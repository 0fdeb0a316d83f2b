/* The plans of cuDNN's attention, made without a GPU for an H200 that is described, and the tables
 * that go with them. */
#include "config.h"
#include "tap.h"
#ifndef HAVE_CUDNN
int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    tap_skip_all("built without cuDNN, whose plans are for a GPU");
}
#else
#include "backend/cudnn_attention.h"
#include "base/memory.h"
#include <dlfcn.h>
#include <string.h>

/* as cuDNN 9.14 describes it */
static const char h200[] =
    "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"supportCoopLaunch\":1,\"totalGlobalMem\":150000000000,\"smClockRateKHz\":1980000,"
    "\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,\"cudaDeviceId\":0,\"deviceVer\":900,"
    "\"driverVer\":13000,\"deviceName\":\"NVIDIA H200\"}";

/* The stand-in is found by its soname from now on, unless a driver was loaded before. */
static int load_stand_in(void) {
    void *ours = dlopen(STAND_IN, RTLD_NOW | RTLD_GLOBAL),
         *found = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return ours && ours == found;
}

static int describe(cudnnBackendDescriptor_t *device) {
    return cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, device) ==
               CUDNN_STATUS_SUCCESS &&
           cudnnBackendSetAttribute(*device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                    CUDNN_TYPE_CHAR, (int64_t)strlen(h200),
                                    h200) == CUDNN_STATUS_SUCCESS &&
           cudnnBackendFinalize(*device) == CUDNN_STATUS_SUCCESS;
}

static const struct cudnn_attention_sizes mixtral = {
    .N = 8192, .longest = 4096, .documents = 4, .H = 32, .G = 8, .K = 128};
static char why[400];

static struct cudnn_attention *plans(struct cudnn_target on, struct cudnn_attention_sizes s,
                                     const char *name) {
    struct cudnn_attention *a = cudnn_attention_new(on, s, why, sizeof why);
    tap_ok(a != NULL, "%s: there are plans", name);
    if (a == NULL)
        tap_note("%s", why);
    else
        cudnn_attention_describe(a, why, sizeof why), tap_note("%s", why);
    return a;
}

static void refused(struct cudnn_target on, struct cudnn_attention_sizes s, const char *name) {
    why[0] = 0;
    struct cudnn_attention *a = cudnn_attention_new(on, s, why, sizeof why);
    tap_ok(a == NULL && why[0], "%s: no plan: %s", name, why);
    cudnn_attention_free(a);
}

static void check_table(const struct cudnn_attention *a) {
    enum { ROOM = 8, ARRAYS = 5 }; /* 4 documents: 5 places, in steps of 4 */
    static const int32_t cu[] = {0, 4096, 4097, 4097, 8000};
    static const int32_t lengths[] = {4096, 1, 0, 3903};
    static const int32_t rows[ARRAYS] = {0, 48 * 128, 32 * 128, 8 * 128, 32};
    int32_t table[ARRAYS * ROOM];
    tap_ok(cudnn_attention_table_bytes(a) == sizeof table, "the table's size");

    int good = cudnn_attention_table(a, table, cu, 4) && !memcmp(table, lengths, sizeof lengths);
    for (int i = 1; i < ARRAYS; i++)
        for (int d = 0; d <= 4; d++) good = good && table[i * ROOM + d] == cu[d] * rows[i];
    tap_ok(good, "a full table, one document empty");

    good = cudnn_attention_table(a, table, cu, 2) && table[1] == 1 && !table[2] && !table[3];
    for (int i = 1; i < ARRAYS; i++)
        for (int d = 0; d <= 4; d++)
            good = good && table[i * ROOM + d] == cu[d < 2 ? d : 2] * rows[i];
    tap_ok(good, "places without a document lie empty at the end");

    good = cudnn_attention_table(a, table, cu, 0);
    for (int d = 0; d < 4; d++) good = good && !table[d] && !table[ROOM + d];
    tap_ok(good, "no documents");

    static const int32_t many[] = {0, 1, 2, 3, 4, 5}, long_one[] = {0, 4097};
    tap_ok(!cudnn_attention_table(a, table, many, 5) &&
               !cudnn_attention_table(a, table, long_one, 1),
           "more or longer documents than planned: no table");
}

/* ours, and some KiB of the plans' own */
static void check_scratch(const struct cudnn_attention *a, size_t ours) {
    size_t bytes = cudnn_attention_scratch(a);
    tap_ok(bytes >= ours && bytes < ours + (1 << 16), "its scratch: %zu MiB", bytes >> 20);
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    struct cudnn_target on = {0};
    if (!load_stand_in()) tap_skip_all("a GPU's driver, or none at all, is loaded already");
    tap_ok(describe(&on.device), "cuDNN takes the description of an H200");

    struct cudnn_attention *a = plans(on, mixtral, "grouped queries");
    size_t N = 8192, wide = 2 * N * 32 * 128, narrow = 2 * N * 8 * 128, row_sum = 4 * N * 32;
    if (a) {
        check_scratch(a, wide + 2 * narrow + 2 * wide + 2 * wide + row_sum);
        check_table(a);
    }
    cudnn_attention_free(a);

    struct cudnn_attention_sizes s = mixtral;
    s.deterministic = 1;
    a = plans(on, s, "deterministic");
    size_t workspace = (size_t)2 * 4 * 32 * 4096 * 4096;
    if (a) check_scratch(a, wide + 2 * narrow + 2 * wide + row_sum + workspace);
    cudnn_attention_free(a);

    s = mixtral, s.G = s.H;
    a = plans(on, s, "as many keys as queries");
    if (a) check_scratch(a, 3 * wide + 2 * wide + row_sum);
    cudnn_attention_free(a);

    s = mixtral, s.N = 349526;
    refused(on, s, "2^31 elements");
    s = mixtral, s.K = 24;
    refused(on, s, "K 24");
    s = mixtral, s.K = 512;
    refused(on, s, "K 512");
    cudnnBackendDestroyDescriptor(on.device);
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
#endif
