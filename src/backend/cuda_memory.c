/* Device memory, and the ways in and out. Uploads go through pinned memory in a ring, so that the
 * host does not wait for the stream; downloads wait. */
#include "config.h"
#include "backend/cuda_window.h"
#include "backend/cuda.h"
#include "base/memory.h"
#include "grid/watchdog.h"
#include "optimizer.h"
#include <assert.h>
#include <string.h>

enum { SEGMENTS = 8, SEGMENT = 8 << 20 };

struct cuda_upload {
    char *ring; /* pinned, SEGMENTS of SEGMENT bytes */
    size_t at;  /* next byte in the segment that is being filled */
    int segment;
    cudaEvent_t done[SEGMENTS]; /* the copies out of a segment */
};

/* Zero. */
static void *alloc(struct backend *be, size_t bytes) {
    struct cuda_state *s = cuda_state(be);
    void *p = NULL;
    size_t room = cuda_alloc_bytes(bytes);
#ifdef REGULON_DEBUG
    assert(!be->sealed);
#endif
    cudaError_t status = cudaMalloc(&p, room);
    if (status == cudaErrorMemoryAllocation) {
        size_t left = 0, all = 0;
        cudaMemGetInfo(&left, &all);
        die_at(__FILE__, __LINE__, EXIT_CONFIG,
               "the GPU has no room for %.2f GB more, %.2f GB of its %.2f are in use; a smaller "
               "dataset.token_micro_batch_size or memory.recompute would need less",
               (double)room / 1e9, (double)(all - left) / 1e9, (double)all / 1e9);
    }
    cuda_check(status);
    cuda_check(cudaMemsetAsync(p, 0, room, s->stream));
    return p;
}

static void release(struct backend *be, void *p) {
    if (!p || cuda_window_release(be, p)) return;
    cuda_check(cudaFree(p));
}

void cuda_wait(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    watchdog_gpu(1);
    cuda_check(cudaStreamSynchronize(s->stream));
    watchdog_gpu(0);
    be->waits++;
}

/* Room for n <= SEGMENT bytes of the ring; the caller enqueues the copy out of it before the next
 * call. */
static char *ring_room(struct cuda_state *s, size_t n) {
    struct cuda_upload *u = s->upload;
    if (u->at + n > SEGMENT) {
        cuda_check(cudaEventRecord(u->done[u->segment], s->stream));
        u->segment = (u->segment + 1) % SEGMENTS, u->at = 0;
        watchdog_gpu(1);
        cuda_check(cudaEventSynchronize(u->done[u->segment]));
        watchdog_gpu(0);
    }
    char *room = u->ring + (size_t)u->segment * SEGMENT + u->at;
    u->at += (n + 15) / 16 * 16;
    return room;
}

static void upload(struct backend *be, void *dst, const void *src, size_t bytes) {
    struct cuda_state *s = cuda_state(be);
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < SEGMENT ? bytes - at : SEGMENT;
        char *room = ring_room(s, n);
        memcpy(room, (const char *)src + at, n);
        cuda_check(cudaMemcpyAsync((char *)dst + at, room, n, cudaMemcpyHostToDevice, s->stream));
    }
}

static void download(struct backend *be, void *dst, const void *src, size_t bytes) {
    struct cuda_state *s = cuda_state(be);
    if (bytes) cuda_check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, s->stream));
    cuda_wait(be);
}

static void zero(struct backend *be, void *p, size_t bytes) {
    if (bytes) cuda_check(cudaMemsetAsync(p, 0, bytes, cuda_state(be)->stream));
}

static void copy(struct backend *be, void *dst, const void *src, size_t bytes) {
    if (bytes)
        cuda_check(
            cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, cuda_state(be)->stream));
}

static void round_real(struct backend *be, real_t *dst, const float *src, size_t n) {
    struct cuda_state *s = cuda_state(be);
    if (dst != src) real_from_float(s->real, dst, src, n, s->stream);
}

static void upload_real(struct backend *be, real_t *dst, const float *src, size_t n) {
    struct cuda_state *s = cuda_state(be);
    if (s->real == REAL_FP32) {
        upload(be, dst, src, n * sizeof *src);
        return;
    }
    for (size_t at = 0; at < n; at += CUDA_STAGED) {
        size_t some = n - at < CUDA_STAGED ? n - at : CUDA_STAGED;
        upload(be, s->staged, src + at, some * sizeof *src);
        real_from_float(s->real, real_at(be, dst, at), s->staged, some, s->stream);
    }
}

static void download_real(struct backend *be, float *dst, const real_t *src, size_t n) {
    struct cuda_state *s = cuda_state(be);
    download(be, dst, src, n * be->real_bytes);
    if (s->real == REAL_FP32) return;
    /* bf16 is the upper half of an FP32: spread from the end, in place */
    for (size_t i = n; i-- > 0;) {
        uint16_t half;
        memcpy(&half, (char *)dst + i * sizeof half, sizeof half);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(dst + i, &bits, sizeof bits);
    }
}

/* What the device has in use, whoever took it: libraries and the driver's own share are in it. */
static double memory_peak(struct backend *be) {
    size_t free_bytes, all;
    (void)be;
    cuda_check(cudaMemGetInfo(&free_bytes, &all));
    return (double)(all - free_bytes);
}

void cuda_fill_memory(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_upload *u = s->upload = memory_alloc(sizeof *u);
    cuda_check(cudaMallocHost((void **)&u->ring, (size_t)SEGMENTS * SEGMENT));
    for (int i = 0; i < SEGMENTS; i++)
        cuda_check(cudaEventCreateWithFlags(&u->done[i], cudaEventDisableTiming));
    be->alloc = alloc;
    be->release = release;
    be->upload = upload;
    be->download = download;
    be->zero = zero;
    be->copy = copy;
    be->upload_real = upload_real;
    be->download_real = download_real;
    be->round = round_real;
    be->memory_peak = memory_peak;
    size_t staged = cuda_rooms_of(NULL, be->real_bytes, 0).bytes[CUDA_ROOM_STAGED];
    s->staged = staged ? alloc(be, staged) : NULL;
}

void cuda_memory_close(struct backend *be) {
    struct cuda_upload *u = cuda_state(be)->upload;
    release(be, cuda_state(be)->staged);
    for (int i = 0; i < SEGMENTS; i++) cuda_check(cudaEventDestroy(u->done[i]));
    cuda_check(cudaFreeHost(u->ring));
    memory_free(u);
}
