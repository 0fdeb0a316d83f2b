#define _GNU_SOURCE
#include "stand_in_cudart.h"
#include "peer_add.h"
#include <assert.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STREAMS = 16, ALLOCATIONS = 256, PAUSE = 300 /* microseconds at most */ };

static enum stand_in_failure failure;
void stand_in_fails(enum stand_in_failure what) {
    failure = what;
}

/* ---- streams ---- */

struct task {
    void (*run)(const struct task *t);
    void *to;
    const void *from;
    size_t n;
    uint64_t value;
    struct peer_parts parts;
    struct task *next;
};

struct CUstream_st {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct task *first, **last;
    int left; /* asked for and not done */
    int closing;
    unsigned chance;
};

static struct CUstream_st *streams[STREAMS];

static void *serve(void *of) {
    struct CUstream_st *s = of;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->closing) pthread_cond_wait(&s->changed, &s->lock);
        struct task *t = s->first;
        if (!t) break;
        s->first = t->next;
        if (!s->first) s->last = &s->first;
        pthread_mutex_unlock(&s->lock);
        if (rand_r(&s->chance) % 3 == 0) usleep((unsigned)rand_r(&s->chance) % PAUSE);
        t->run(t);
        free(t);
        pthread_mutex_lock(&s->lock);
        s->left--;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void ask(struct CUstream_st *s, struct task task) {
    struct task *t = malloc(sizeof *t);
    *t = task;
    t->next = NULL;
    pthread_mutex_lock(&s->lock);
    *s->last = t;
    s->last = &t->next;
    s->left++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    int i = 0;
    (void)flags;
    (void)priority;
    while (streams[i]) i++;
    struct CUstream_st *s = *stream = streams[i] = calloc(1, sizeof *s);
    s->last = &s->first;
    s->chance = (unsigned)getpid() + (unsigned)i;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_create(&s->thread, NULL, serve, s);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    pthread_mutex_lock(&s->lock);
    while (s->left) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
    pthread_mutex_lock(&s->lock);
    s->closing = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    for (int i = 0; i < STREAMS; i++)
        if (streams[i] == s) streams[i] = NULL;
    free(s);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    for (int i = 0; i < STREAMS; i++)
        if (streams[i]) cudaStreamSynchronize(streams[i]);
    return cudaSuccess;
}

/* ---- events ---- */

struct CUevent_st {
    uint64_t asked;        /* times that it was recorded, the host's count */
    _Atomic uint64_t done; /* and the streams' */
};

/* The last time counts, also where another stream comes to an earlier one later. */
static void record(const struct task *t) {
    struct CUevent_st *e = t->to;
    uint64_t done = atomic_load(&e->done);
    while (done < t->value && !atomic_compare_exchange_weak(&e->done, &done, t->value)) continue;
}

static void wait_event(const struct task *t) {
    while (atomic_load(&((struct CUevent_st *)t->to)->done) < t->value) usleep(20);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    (void)flags;
    *e = calloc(1, sizeof **e);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e) {
    free(e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    ask(s, (struct task){.run = record, .to = e, .value = ++e->asked});
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    (void)flags;
    ask(s, (struct task){.run = wait_event, .to = e, .value = e->asked});
    return cudaSuccess;
}

/* ---- memory ---- */

static struct {
    void *p;
    size_t bytes;
    int file;
} allocations[ALLOCATIONS];

/* In a handle. */
struct name {
    int process, file;
    size_t bytes;
};

static int find(const void *p) {
    int i = 0;
    while (i < ALLOCATIONS && allocations[i].p != p) i++;
    return i;
}

static void *map(int file, size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert(p != MAP_FAILED);
    return p;
}

cudaError_t cudaMalloc(void **p, size_t bytes) {
    int i = find(NULL), file = memfd_create("device", 0);
    assert(i < ALLOCATIONS && file >= 0);
    int status = ftruncate(file, (off_t)bytes);
    assert(status == 0);
    *p = map(file, bytes);
    allocations[i].p = *p, allocations[i].bytes = bytes, allocations[i].file = file;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
    int i = find(p);
    assert(p && i < ALLOCATIONS);
    cudaDeviceSynchronize();
    munmap(p, allocations[i].bytes);
    close(allocations[i].file);
    allocations[i].p = NULL;
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *p) {
    int i = find(p);
    memset(handle, 0, sizeof *handle);
    if (i == ALLOCATIONS) return cudaErrorInvalidValue; /* no allocation begins there */
    struct name name = {(int)getpid(), allocations[i].file, allocations[i].bytes};
    memcpy(handle, &name, sizeof name);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t handle, unsigned flags) {
    struct name name;
    char path[64];
    (void)flags;
    memcpy(&name, &handle, sizeof name);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", name.process, name.file);
    int file = failure == FAILS_OPEN ? -1 : open(path, O_RDWR);
    if (file < 0) return cudaErrorInvalidValue;
    *p = map(file, name.bytes);
    close(file);
    return cudaSuccess;
}

/* Its size is not known any more: it stays mapped. */
cudaError_t cudaIpcCloseMemHandle(void *p) {
    (void)p;
    return cudaSuccess;
}

static void copy(const struct task *t) {
    memmove(t->to, t->from, t->n);
}

static void set(const struct task *t) {
    memset(t->to, (int)t->value, t->n);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
                            cudaStream_t s) {
    (void)kind;
    ask(s, (struct task){.run = copy, .to = to, .from = from, .n = n});
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind) {
    (void)kind;
    memmove(to, from, n);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t s) {
    ask(s, (struct task){.run = set, .to = to, .value = (uint64_t)value, .n = n});
    return cudaSuccess;
}

/* ---- operations of streams on memory ---- */

static void write_value(const struct task *t) {
    atomic_store((_Atomic uint32_t *)t->to, (uint32_t)t->value);
}

static void wait_value(const struct task *t) {
    while ((int32_t)(atomic_load((_Atomic uint32_t *)t->to) - (uint32_t)t->value) < 0) usleep(20);
}

static CUresult batch(CUstream s, unsigned n, CUstreamBatchMemOpParams *list, unsigned flags) {
    (void)flags;
    if (failure == FAILS_OPS) return CUDA_ERROR_NOT_SUPPORTED;
    for (unsigned i = 0; i < n; i++) {
        int writes = list[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_32;
        assert(writes || (list[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 &&
                          list[i].waitValue.flags == CU_STREAM_WAIT_VALUE_GEQ));
        ask(s, (struct task){.run = writes ? write_value : wait_value,
                             .to = (void *)(uintptr_t)list[i].writeValue.address,
                             .value = list[i].writeValue.value}); /* the other's lies there, too */
    }
    return CUDA_SUCCESS;
}

static cudaError_t entry(void **f, enum cudaDriverEntryPointQueryResult *result) {
    CUresult (*found)(CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned) = batch;
    memcpy(f, &found, sizeof found);
    *result =
        failure == FAILS_ENTRY ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    (void)name;
    (void)version;
    (void)flags;
    return entry(f, result);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char *name, void **f, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *result) {
    (void)name;
    (void)flags;
    return entry(f, result);
}
#endif

/* ---- the kernel, and the rest ---- */

/* Often slower than the copies. */
static void add(const struct task *t) {
    float *sum = t->to;
    usleep((unsigned)(t->n % 7) * PAUSE);
    for (size_t i = 0; i < t->n; i++) {
        float x = t->parts.at[0][i];
        for (int r = 1; r < t->parts.n; r++) x += t->parts.at[r][i];
        sum[i] = t->value ? x + sum[i] : x;
    }
}

void peer_add(float *sum, struct peer_parts parts, size_t n, int accumulate, int blocks,
              cudaStream_t s) {
    assert(blocks > 0 && parts.n + accumulate > 0);
    if (parts.n == 0) return;
    ask(s, (struct task){
               .run = add, .to = sum, .parts = parts, .n = n, .value = (uint64_t)accumulate});
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most) {
    *least = 0, *most = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device) {
    (void)which;
    (void)device;
    *value = 132;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t status) {
    (void)status;
    return "it stands in";
}
