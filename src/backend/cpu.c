/* The CPU backend's memory, and the table put together. */
#include "config.h"
#include "backend/cpu.h"
#include "base/die.h"
#include "base/memory.h"
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* calloc, not memory_alloc: arenas are sized for the worst case, and pages that are never touched
 * cost nothing. */
static void *alloc(struct backend *be, size_t bytes) {
    (void)be;
    void *p = calloc(1, bytes + 128);
    if (!p) die("out of memory: %zu bytes", bytes);
    char *aligned = (char *)(((uintptr_t)p + 128) & ~(uintptr_t)63);
    memcpy(aligned - sizeof p, &p, sizeof p);
    return aligned;
}

static void release(struct backend *be, void *x) {
    (void)be;
    if (!x) return;
    void *p;
    memcpy(&p, (char *)x - sizeof p, sizeof p);
    free(p);
}

static void copy(struct backend *be, void *dst, const void *src, size_t bytes) {
    (void)be;
    memcpy(dst, src, bytes);
}

static void zero(struct backend *be, void *p, size_t bytes) {
    (void)be;
    memset(p, 0, bytes);
}

static void to_real(struct backend *be, real_t *dst, const float *src, size_t n) {
    (void)be;
    if (dst != src) memcpy(dst, src, n * sizeof *src);
}

/* One growing buffer a thread. */
struct cpu_state {
    int n_threads;
    float **scratch;
    size_t *room;
    float *exchange[N_EXCHANGE_BUFFERS];
    size_t exchange_room[N_EXCHANGE_BUFFERS];
    struct {
        float *table;
        size_t room;
        int K, n;
        double theta;
    } rope;
};

/* Threads of this rank: OMP_NUM_THREADS if it is set, else its share of the node's processors:
 * those it is bound to, or, where ranks may run on the same ones, the node's divided by its ranks
 * (two ranks that spin on one core are fifty times slower than they need be). Collective over
 * grid->node. */
static int choose_threads(const struct grid *g) {
#ifdef _OPENMP
    cpu_set_t mine, all;
    CPU_ZERO(&mine);
    if (!getenv("OMP_NUM_THREADS") && sched_getaffinity(0, sizeof mine, &mine) == 0) {
        int n = CPU_COUNT(&mine), sum;
        MPI_Allreduce(&mine, &all, sizeof mine, MPI_BYTE, MPI_BOR, g->node);
        MPI_Allreduce(&n, &sum, 1, MPI_INT, MPI_SUM, g->node);
        if (sum > CPU_COUNT(&all)) n = CPU_COUNT(&all) / g->node_size;
        omp_set_num_threads(n > 0 ? n : 1);
    }
    return omp_get_max_threads();
#else
    (void)g;
    return 1;
#endif
}

static float *grow(struct backend *be, float **buffer, size_t *room, size_t n) {
    if (*room < n) {
        release(be, *buffer);
        *buffer = alloc(be, n * sizeof(float));
        *room = n;
    }
    return *buffer;
}

float *cpu_exchange_buffer(struct backend *be, enum exchange_buffer which, size_t n) {
    struct cpu_state *state = be->state;
    return grow(be, &state->exchange[which], &state->exchange_room[which], n);
}

/* Angles in FP32 from an FP32 frequency, as Hugging Face computes them. */
const float *cpu_rope_table(struct backend *be, int K, double theta, int n) {
    struct cpu_state *state = be->state;
    if (state->rope.K == K && state->rope.theta == theta && state->rope.n >= n)
        return state->rope.table;
    float *table = grow(be, &state->rope.table, &state->rope.room, (size_t)n * (size_t)K);
    for (int j = 0; j < K / 2; j++) {
        float frequency = 1 / powf((float)theta, (float)(2 * j) / (float)K);
        for (int i = 0; i < n; i++) {
            float angle = (float)i * frequency, *row = table + (size_t)i * (size_t)K;
            row[j] = cosf(angle);
            row[K / 2 + j] = sinf(angle);
        }
    }
    state->rope.K = K, state->rope.theta = theta, state->rope.n = n;
    return table;
}

float *cpu_scratch(struct backend *be, size_t n) {
    struct cpu_state *state = be->state;
#ifdef _OPENMP
    int i = omp_get_thread_num();
#else
    int i = 0;
#endif
    return grow(be, &state->scratch[i], &state->room[i], n);
}

void cpu_open(struct backend *be) {
    struct cpu_state *state = be->state = memory_alloc(sizeof *state);
    state->n_threads = choose_threads(be->grid);
    state->scratch = memory_alloc_array((size_t)state->n_threads, sizeof *state->scratch);
    state->room = memory_alloc_array((size_t)state->n_threads, sizeof *state->room);
    cpu_gemm_open();
    be->name = "cpu";
    be->real_bytes = sizeof(float);
    be->details = memory_format("%s, %d thread%s a rank", cpu_gemm_name(), state->n_threads,
                                state->n_threads == 1 ? "" : "s");
    be->alloc = alloc;
    be->release = release;
    be->upload = copy;
    be->download = copy;
    be->zero = zero;
    be->to_real = to_real;
    cpu_fill_dense(be);
    cpu_fill_attention(be);
    cpu_fill_route(be);
    cpu_fill_exchange(be);
    cpu_fill_experts(be);
    cpu_fill_head(be);
    cpu_fill_optimizer(be);
    cpu_fill_collectives(be);
}

void cpu_close(struct backend *be) {
    struct cpu_state *state = be->state;
    for (int i = 0; i < state->n_threads; i++) release(be, state->scratch[i]);
    release(be, state->rope.table);
    for (int i = 0; i < N_EXCHANGE_BUFFERS; i++) release(be, state->exchange[i]);
    memory_free(state->room);
    memory_free(state->scratch);
    memory_free(state);
    memory_free((char *)(uintptr_t)be->details);
}
