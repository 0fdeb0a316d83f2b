/* The CPU backend's memory: host memory, and the buffers that grow in the first steps. */
#include "config.h"
#include "backend/cpu.h"
#include "base/die.h"
#include "base/memory.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#ifdef _OPENMP
#include <omp.h>
#endif

size_t cpu_alloc_bytes(size_t bytes) {
    return bytes + 128;
}

/* calloc, not memory_alloc: arenas are sized for the worst case, and pages that are never touched
 * cost nothing. */
static void *alloc(struct backend *be, size_t bytes) {
    (void)be;
    void *p = calloc(1, cpu_alloc_bytes(bytes));
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

static void upload_real(struct backend *be, real_t *dst, const float *src, size_t n) {
    (void)be;
    if (dst != src) memcpy(dst, src, n * sizeof *src);
}

static void download_real(struct backend *be, float *dst, const real_t *src, size_t n) {
    upload_real(be, dst, src, n);
}

static double memory_peak(struct backend *be) {
    (void)be;
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss * 1024;
}

/* Buffers grow in the first steps. */
static void reserve(struct backend *be, struct work w) {
    (void)be;
    (void)w;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

struct cpu_rooms cpu_rooms_of(const struct work *w, int ep_size) {
    const struct attention_shape *a = &w->attention;
    size_t N = (size_t)w->N, D = (size_t)w->D, F = (size_t)w->F, K = (size_t)a->K,
           attention = N * CPU_QUERIES * (w->backward ? 2 : 1),
           head = (size_t)CPU_CHUNK * (size_t)w->V, projections = (size_t)(a->H + 2 * a->G) * K;
    struct cpu_rooms r = {.scratch = larger(attention, head) * sizeof(float),
                          .rope = N * K * sizeof(float),
                          .exchange = ep_size > 1 ? (size_t)ep_size * N * D * sizeof(float) : 0};
    if (w->low == LOW_NONE) return r;
    /* All tokens may go to one expert. b is weights or, for their gradients, activations. */
    size_t rows = N * (size_t)ep_size, up = 2 * F,
           activations = larger(rows * larger(D, up), N * projections),
           others = larger(rows * larger(D, F), N * (size_t)a->H * K);
    r.rounded[ROUNDED_A] = activations * sizeof(float);
    r.rounded[ROUNDED_B] =
        larger(w->backward ? others : 0, D * larger(up, projections)) * sizeof(float);
    return r;
}

/* One growing buffer a thread. */
struct cpu_state {
    int n_threads;
    float **scratch;
    size_t *room;
    float *exchange[N_EXCHANGE_BUFFERS], *rounded[N_ROUNDED_BUFFERS];
    size_t exchange_room[N_EXCHANGE_BUFFERS], rounded_room[N_ROUNDED_BUFFERS];
    struct {
        float *table;
        size_t room;
        int K, n;
        double theta;
    } rope;
    const int32_t *cu_seqlens;
    int n_documents;
    enum clock clock; /* what time counts as since `since` */
    double since, seconds[N_CLOCKS];
};

static void documents(struct backend *be, const int32_t *cu_seqlens, int n) {
    struct cpu_state *state = be->state;
    state->cu_seqlens = cu_seqlens, state->n_documents = n;
}

const int32_t *cpu_documents(struct backend *be, int *n) {
    struct cpu_state *state = be->state;
    *n = state->n_documents;
    return state->cu_seqlens;
}

static enum clock clock_turn(struct backend *be, enum clock what) {
    struct cpu_state *state = be->state;
    enum clock before = state->clock;
    double now = MPI_Wtime();
    state->seconds[before] += now - state->since;
    state->clock = what, state->since = now;
    return before;
}

static void clock_read(struct backend *be, double seconds[N_CLOCKS]) {
    struct cpu_state *state = be->state;
    clock_turn(be, state->clock);
    memcpy(seconds, state->seconds, sizeof state->seconds);
    memset(state->seconds, 0, sizeof state->seconds);
}

static void profile(struct backend *be, int on) {
    (void)be;
    (void)on;
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

float *cpu_rounded_buffer(struct backend *be, enum rounded_buffer which, size_t n) {
    struct cpu_state *state = be->state;
    return grow(be, &state->rounded[which], &state->rounded_room[which], n);
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

static void *alloc_shared(struct backend *be, size_t bytes) {
    return be->alloc(be, bytes);
}

void cpu_memory_open(struct backend *be, int n_threads) {
    struct cpu_state *state = be->state = memory_alloc(sizeof *state);
    state->n_threads = n_threads;
    state->scratch = memory_alloc_array((size_t)n_threads, sizeof *state->scratch);
    state->room = memory_alloc_array((size_t)n_threads, sizeof *state->room);
    be->alloc = alloc;
    be->alloc_shared = alloc_shared;
    be->alloc_beside = alloc_shared;
    be->release = release;
    be->upload = copy;
    be->download = copy;
    be->zero = zero;
    be->copy = copy;
    be->upload_real = upload_real;
    be->download_real = download_real;
    be->round = upload_real;
    be->memory_peak = memory_peak;
    be->reserve = reserve;
    be->clock = clock_turn;
    be->clock_read = clock_read;
    be->profile = profile;
    be->documents = documents;
}

void cpu_memory_close(struct backend *be) {
    struct cpu_state *state = be->state;
    for (int i = 0; i < state->n_threads; i++) release(be, state->scratch[i]);
    release(be, state->rope.table);
    for (int i = 0; i < N_EXCHANGE_BUFFERS; i++) release(be, state->exchange[i]);
    for (int i = 0; i < N_ROUNDED_BUFFERS; i++) release(be, state->rounded[i]);
    memory_free(state->room);
    memory_free(state->scratch);
    memory_free(state);
}
