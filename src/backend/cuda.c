/* The CUDA backend: its device, its streams, and the table put together. */
#include "config.h"
#include "backend/cuda.h"
#include "base/memory.h"
#include "device.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#ifdef HAVE_NCCL
#include <nccl.h>
#endif

static void kernel_failed_here(const char *file, int line, const char *text) {
    die("CUDA: %s:%d: %s", file, line, text);
}

static int device_of(const struct grid *g) {
    int n = device_count();
    return n > 0 ? g->node_rank % n : -1;
}

char *cuda_refusal(const struct grid *g) {
    struct device_info mine;
    int device = device_of(g);
    if (device < 0) return memory_string("no GPU can be used here (nvidia-smi says more)");
    if (!device_describe(device, &mine)) return memory_format("GPU %d cannot be asked", device);
    const char *why = device_fails(device);
    return why ? memory_format("%s (compute capability %d.%d): %s (without code for it in this "
                               "program, configure with NVCC_GENCODE)",
                               mine.name, mine.capability / 10, mine.capability % 10, why)
               : NULL;
}

int cuda_capability(const struct grid *g) {
    struct device_info mine;
    return device_describe(device_of(g), &mine) ? mine.capability : 0;
}

char *cuda_refusal_together(const struct grid *g) {
    struct device_info mine, *all = memory_alloc_array((size_t)g->node_size, sizeof *all);
    char *problem = NULL;
    device_describe(device_of(g), &mine);
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, g->node);
    for (int r = 0; r < g->node_size && !problem; r++)
        for (int q = 0; q < r && !problem; q++)
            if (strcmp(all[r].uuid, all[q].uuid) == 0)
                problem = memory_format("ranks %d and %d of this host would share %s, UUID %s: "
                                        "start as many ranks as there are GPUs",
                                        q, r, all[q].name, all[q].uuid);
    int lowest = mine.capability, highest = mine.capability;
    MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, g->world);
    MPI_Allreduce(MPI_IN_PLACE, &highest, 1, MPI_INT, MPI_MAX, g->world);
    if (lowest != highest && !problem)
        problem = memory_format("GPUs of compute capability %d.%d and %d.%d together; this one, "
                                "%s, has %d.%d",
                                lowest / 10, lowest % 10, highest / 10, highest % 10, mine.name,
                                mine.capability / 10, mine.capability % 10);
#ifndef HAVE_NCCL
    if (!problem && g->n_ranks > 1)
        problem = memory_string("this build has no NCCL, and so serves one rank");
#endif
    memory_free(all);
    return problem;
}

/* Cosines and sines, in FP32 from an FP32 frequency, as Hugging Face computes them. */
static float *rope_table(struct backend *be, const struct work *w, size_t bytes) {
    size_t n = (size_t)w->N, K = (size_t)w->attention.K;
    float *table = memory_alloc(bytes), *device = be->alloc(be, bytes);
    for (size_t j = 0; j < K / 2; j++) {
        float frequency = 1 / powf((float)w->theta, (float)(2 * j) / (float)K);
        for (size_t i = 0; i < n; i++) {
            float angle = (float)i * frequency;
            table[i * K + j] = cosf(angle);
            table[i * K + K / 2 + j] = sinf(angle);
        }
    }
    be->upload(be, device, table, bytes);
    memory_free(table);
    return device;
}

static void check_sizes(const struct backend *be, const struct work *w) {
    char *problem = be->grid->rank == 0 ? cuda_work_refusal(w) : NULL;
    if (problem) die_user(EXIT_CONFIG, "%s", problem);
    user_agree();
}

static void reserve(struct backend *be, struct work w) {
    struct cuda_state *s = cuda_state(be);
    assert(!s->scratch);
    s->work = w = cuda_work_on(w, cuda_capability(be->grid), &s->options);
    s->eight = w.low == LOW_FP8_BLOCK ? &cuda_fp8
               : w.low == LOW_NONE    ? NULL
               : w.way == LOW_FAST    ? &cuda_mxfp8
                                      : &cuda_emulated;
    check_sizes(be, &w);
    cuda_attention_reserve(be);
    cuda_experts_reserve(be);
    cuda_low_reserve(be);
    cuda_emulate_reserve(be);
    cuda_mxfp8_reserve(be);
    size_t attention = cuda_attention_scratch(be),
           experts = cuda_experts_scratch(&w, s->grouped != NULL, be->grid->ep_size);
    struct cuda_rooms rooms =
        cuda_rooms_of(&w, be->real_bytes, attention > experts ? attention : experts);
    const size_t *bytes = rooms.bytes;
    s->chunk = rooms.chunk;
    s->scratch = be->alloc(be, bytes[CUDA_ROOM_SCRATCH]);
    s->logits = be->alloc(be, bytes[CUDA_ROOM_LOGITS]);
    s->dlogits = w.backward ? be->alloc(be, bytes[CUDA_ROOM_DLOGITS]) : NULL;
    s->losses = be->alloc(be, bytes[CUDA_ROOM_LOSSES]);
    s->rope = rope_table(be, &w, bytes[CUDA_ROOM_ROPE]);
    cuda_exchange_reserve(be);
    if (w.beside) cuda_beside_reserve(be);
    be->engines =
        memory_format("experts %s, attention %s, exchange %s%s%s", cuda_experts_name(be),
                      cuda_attention_name(be), cuda_exchange_name(be),
                      w.beside ? ", collectives " : "", w.beside ? cuda_beside_name(be) : "");
}

static char *describe(const struct cuda_state *s) {
    struct device_info d;
    int driver = 0, runtime = 0;
    char nccl[40] = "no NCCL";
#ifdef HAVE_NCCL
    int version = 0;
    if (ncclGetVersion(&version) == ncclSuccess)
        snprintf(nccl, sizeof nccl, "NCCL %d.%d.%d", version / 10000, version / 100 % 100,
                 version % 100);
#endif
    device_describe(s->device, &d);
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    size_t lt = cublasLtGetVersion();
    return memory_format("%s, driver for CUDA %d.%d, CUDA %d.%d, cuBLASLt %zu.%zu.%zu, %s, %s",
                         d.name, driver / 1000, driver % 1000 / 10, runtime / 1000,
                         runtime % 1000 / 10, lt / 10000, lt / 100 % 100, lt % 100, nccl,
                         s->real == REAL_BF16 ? "BF16" : "FP32");
}

static void cuda_close(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    cuda_wait(be);
    cuda_graph_close(be);
    cuda_beside_close(be);
    cuda_collectives_close(be);
    cuda_attention_close(be);
    cuda_low_close(be);
    cuda_emulate_close(be);
    cuda_mxfp8_close(be);
    cuda_experts_close(be);
    cuda_exchange_close(be);
    void *const all[] = {s->scratch, s->logits, s->dlogits, s->losses, s->rope};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) be->release(be, all[i]);
    cuda_gemm_close(be);
    cuda_clock_close(be);
    cuda_memory_close(be);
    for (int i = 0; i < CUDA_SIDES; i++) {
        cuda_check(cudaEventDestroy(s->joined[i]));
        cuda_check(cudaStreamDestroy(s->sides[i]));
    }
    cuda_check(cudaEventDestroy(s->forked));
    cuda_check(cudaStreamDestroy(s->stream));
    memory_free((char *)(uintptr_t)be->details);
    memory_free((char *)(uintptr_t)be->engines);
    memory_free(s);
}

void cuda_open(struct backend *be, const struct backend_options *options) {
    struct cuda_state *s = be->state = memory_alloc(sizeof *s);
    kernel_on_failure(kernel_failed_here);
    s->options = *options;
    s->device = device_of(be->grid);
    s->real = options->fp32 ? REAL_FP32 : REAL_BF16;
    cuda_check(cudaSetDevice(s->device));
    cuda_check(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    cuda_check(cudaEventCreateWithFlags(&s->forked, cudaEventDisableTiming));
    for (int i = 0; i < CUDA_SIDES; i++) {
        cuda_check(cudaStreamCreateWithFlags(&s->sides[i], cudaStreamNonBlocking));
        cuda_check(cudaEventCreateWithFlags(&s->joined[i], cudaEventDisableTiming));
    }
    be->name = "cuda";
    be->row_unit = 1;
    be->close = cuda_close;
    be->real_bytes = real_bytes(s->real);
    be->peak_side = 8192;
    be->has_profiler = 1;
    be->details = describe(s);
    cuda_fill_memory(be);
    cuda_fill_clock(be);
    cuda_gemm_open(be);
    cuda_fill_dense(be);
    cuda_fill_experts(be);
    cuda_fill_low(be);
    cuda_fill_statistics(be);
    cuda_fill_attention(be);
    cuda_fill_route(be);
    cuda_fill_exchange(be);
    cuda_fill_head(be);
    cuda_fill_optimizer(be);
    cuda_fill_collectives(be);
    cuda_fill_graph(be);
    cuda_fill_beside(be);
    be->reserve = reserve;
}
