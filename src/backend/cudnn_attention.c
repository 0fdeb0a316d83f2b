/* The backward pass takes Q, K and V apart and leaves dQ, dK and dV apart. It could work on qkv and
 * dqkv directly, but its scratch has the strides of its results: for N 8192, H 32, G 8, K 128 961
 * MiB, against 353 MiB so. (Results apart from operands together are planned and run, and wrong:
 * the engine takes places of its own choice.) Taking apart and joining move 192 MiB each, 0.05 ms
 * at 4.3 TB/s beside 1.4 ms of attention. dqkv itself, free until the end, holds Q, K and V. */
#include "config.h"
#include "backend/cudnn_attention.h"
#include "backend/cudnn_attention_graph.h"
#include "base/die.h"
#include "base/memory.h"
#include "join.h"
#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdio.h>

/* The arrays of the table; each begins at a multiple of 16 bytes. */
enum array { LENGTHS, AT_QKV, AT_WIDE, AT_NARROW, AT_HEAD, ARRAYS };

struct cudnn_attention {
    struct cudnn_attention_sizes s; /* longest rounded up */
    struct cudnn_graph *forward, *backward;
    struct cudnn_scratch scratch;
    cudaStream_t stream;
};

static struct cudnn_scratch divide(const struct cudnn_attention *a) {
    size_t forward = cudnn_graph_workspace(a->forward),
           backward = cudnn_graph_workspace(a->backward);
    return cudnn_scratch_of(&a->s, forward > backward ? forward : backward);
}

/* The packed form is right on Hopper (H200, cuDNN 9.14 and 9.19). cuDNN plans it elsewhere too, but
 * for 8.x NVIDIA's cudnn-frontend knows it to be wrong, and others are not tried. */
static int device_serves(struct cudnn_target on, char *why, size_t size) {
    if (on.handle == NULL) return 1;
    int device, major = 0, minor = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
        snprintf(why, size, "the device cannot be asked");
        return 0;
    }
    if (major == 9) return 1;
    snprintf(why, size, "compute capability %d.%d: cuDNN's attention is tried on 9.0 only", major,
             minor);
    return 0;
}

static int plan(struct cudnn_graph *g, char *why, size_t size) {
    if (cudnn_graph_plan(g)) return 1;
    snprintf(why, size, "%s", cudnn_graph_why(g));
    return 0;
}

struct cudnn_attention *cudnn_attention_new(struct cudnn_target on, struct cudnn_attention_sizes s,
                                            char *why, size_t size) {
    assert(s.N > 0 && s.longest > 0 && s.documents > 0 && s.G > 0 && s.H % s.G == 0 && s.K > 0);
    if (!device_serves(on, why, size) || !cudnn_sizes_serve(&s, why, size)) return NULL;
    struct cudnn_attention *a = memory_alloc(sizeof *a);
    s.longest = (s.longest + 127) / 128 * 128; /* of the kernels' tiles */
    a->s = s;
    a->forward = cudnn_graph_new(on);
    a->backward = cudnn_graph_new(on);
    cudnn_attention_forward_graph(a->forward, &a->s);
    cudnn_attention_backward_graph(a->backward, &a->s);
    if (!plan(a->forward, why, size) || !plan(a->backward, why, size)) {
        cudnn_attention_free(a);
        return NULL;
    }
    a->scratch = divide(a);
    if (on.handle && cudnnGetStream(on.handle, &a->stream) != CUDNN_STATUS_SUCCESS)
        die("cuDNN: no stream");
    return a;
}

void cudnn_attention_free(struct cudnn_attention *a) {
    if (a == NULL) return;
    cudnn_graph_free(a->forward);
    cudnn_graph_free(a->backward);
    memory_free(a);
}

void cudnn_attention_describe(const struct cudnn_attention *a, char *text, size_t size) {
    size_t v = cudnnGetVersion();
    snprintf(text, size, "cuDNN %zu.%zu.%zu, engines %d and %d", v / 10000, v / 100 % 100, v % 100,
             cudnn_graph_engine(a->forward), cudnn_graph_engine(a->backward));
}

size_t cudnn_attention_scratch(const struct cudnn_attention *a) {
    return a->scratch.bytes;
}

/* ---- the table ---- */

/* places of one array, of documents + 1 numbers */
static size_t array_room(const struct cudnn_attention *a) {
    return ((size_t)a->s.documents + 1 + 3) / 4 * 4;
}

size_t cudnn_attention_table_bytes(const struct cudnn_attention *a) {
    return ARRAYS * array_room(a) * sizeof(int32_t);
}

int cudnn_attention_table(const struct cudnn_attention *a, int32_t *table, const int32_t *cu,
                          int n) {
    const struct cudnn_attention_sizes *s = &a->s;
    assert(n >= 0 && (n == 0 || (cu[0] == 0 && cu[n] <= s->N)));
    if (n > s->documents) return 0;
    for (int d = 0; d < n; d++)
        if (cu[d + 1] - cu[d] > s->longest) return 0;
    const int32_t rows[ARRAYS] = {[AT_QKV] = (s->H + 2 * s->G) * s->K,
                                  [AT_WIDE] = s->H * s->K,
                                  [AT_NARROW] = s->G * s->K,
                                  [AT_HEAD] = s->H};
    size_t room = array_room(a);
    for (int d = 0; d <= s->documents; d++) { /* places without a document lie empty at the end */
        int32_t at = n == 0 ? 0 : cu[d < n ? d : n];
        table[LENGTHS * room + (size_t)d] = d < n ? cu[d + 1] - at : 0;
        for (int i = AT_QKV; i < ARRAYS; i++) table[(size_t)i * room + (size_t)d] = at * rows[i];
    }
    return 1;
}

/* ---- the passes ---- */

static void bind(const struct cudnn_attention *a, void *at[SLOTS], const void *qkv, const void *out,
                 const float *lse, const int32_t *table, char *scratch) {
    const struct cudnn_attention_sizes *s = &a->s;
    const struct cudnn_scratch *p = &a->scratch;
    char *q = (char *)(uintptr_t)qkv;
    int32_t *arrays = (int32_t *)(uintptr_t)table;
    size_t room = array_room(a);
    at[SLOT_Q] = q;
    at[SLOT_K] = q + 2 * (size_t)(s->H * s->K);
    at[SLOT_V] = q + 2 * (size_t)((s->H + s->G) * s->K);
    at[SLOT_OUT] = (void *)(uintptr_t)out;
    at[SLOT_LSE] = (void *)(uintptr_t)lse;
    at[SLOT_DQ] = scratch + p->dq;
    at[SLOT_DK] = scratch + p->dk;
    at[SLOT_DV] = scratch + p->dv;
    at[SLOT_DQ_SUM] = scratch + p->dq_sum;
    at[SLOT_DK_WIDE] = scratch + p->dk_wide;
    at[SLOT_DV_WIDE] = scratch + p->dv_wide;
    at[SLOT_ROW_SUM] = scratch + p->row_sum;
    at[SLOT_LENGTHS_Q] = at[SLOT_LENGTHS_KV] = arrays + LENGTHS * room;
    at[SLOT_AT_QKV] = arrays + AT_QKV * room;
    at[SLOT_AT_WIDE] = arrays + AT_WIDE * room;
    at[SLOT_AT_NARROW] = arrays + AT_NARROW * room;
    at[SLOT_AT_HEAD] = arrays + AT_HEAD * room;
}

void cudnn_attention_forward(const struct cudnn_attention *a, void *out, float *lse,
                             const void *qkv, const int32_t *table, void *scratch, int N) {
    assert(N >= 0 && N <= a->s.N);
    if (N == 0) return;
    void *at[SLOTS] = {0};
    bind(a, at, qkv, out, lse, table, scratch);
    cudnn_graph_run(a->forward, at, (char *)scratch + a->scratch.workspace);
}

void cudnn_attention_backward(const struct cudnn_attention *a, void *dqkv, const void *dout,
                              const void *out, const float *lse, const void *qkv,
                              const int32_t *table, void *scratch, int N) {
    assert(N >= 0 && N <= a->s.N);
    if (N == 0) return;
    void *at[SLOTS] = {0};
    bind(a, at, qkv, out, lse, table, scratch);
    at[SLOT_DOUT] = (void *)(uintptr_t)dout;
    at[SLOT_Q] = dqkv;
    at[SLOT_K] = (char *)dqkv + 2 * (size_t)N * (size_t)(a->s.H * a->s.K);
    at[SLOT_V] = (char *)at[SLOT_K] + 2 * (size_t)N * (size_t)(a->s.G * a->s.K);
    split_heads(REAL_BF16, at[SLOT_Q], at[SLOT_K], at[SLOT_V], qkv, N, a->s.H, a->s.G, a->s.K,
                a->stream);
    cudnn_graph_run(a->backward, at, (char *)scratch + a->scratch.workspace);
    join_heads(REAL_BF16, dqkv, at[SLOT_DQ], at[SLOT_DK], at[SLOT_DV], N, a->s.H, a->s.G, a->s.K,
               a->stream);
}
