/* Attention by cuDNN where it can, else by the kernel of our own: sliding windows, FP32, other
 * GPUs, builds without cuDNN, runs that must repeat to the bit, and micro-batches of more documents
 * than cuDNN's plans were made for. */
#include "config.h"
#include "backend/cuda.h"
#include "flash.h"
#include "base/memory.h"
#include <stdio.h>
#ifdef HAVE_CUDNN
#include "backend/cudnn_attention.h"
#endif

struct cuda_attention {
    char name[120];
    int32_t *begin, *end; /* [N] first token of each token's document, one past its last */
    int32_t *host_begin, *host_end; /* the same, while they are made */
#ifdef HAVE_CUDNN
    struct cudnn_target on;
    struct cudnn_attention *plans[CUDA_PLANS]; /* for few and for many documents; NULL: not used */
    struct cudnn_attention *plan;              /* of this micro-batch; NULL: it is not cuDNN's */
    int32_t *table, *host_table;               /* where cuDNN finds the documents */
#endif
    int N;
};

static struct flash_sizes sizes_of(struct attention_shape s) {
    return (struct flash_sizes){.H = s.H, .G = s.G, .K = s.K, .window = s.window};
}

static void documents(struct backend *be, const int32_t *cu, int n) {
    struct cuda_attention *a = cuda_state(be)->attention;
    a->N = n ? cu[n] : 0;
#ifdef HAVE_CUDNN
    a->plan = NULL;
    for (int i = 0; i < CUDA_PLANS && !a->plan; i++)
        if (a->plans[i] && cudnn_attention_table(a->plans[i], a->host_table, cu, n))
            a->plan = a->plans[i];
    if (a->plan) {
        be->upload(be, a->table, a->host_table, cudnn_attention_table_bytes(a->plan));
        return;
    }
#endif
    for (int d = 0; d < n; d++)
        for (int i = cu[d]; i < cu[d + 1]; i++)
            a->host_begin[i] = cu[d], a->host_end[i] = cu[d + 1];
    be->upload(be, a->begin, a->host_begin, (size_t)a->N * sizeof *a->begin);
    be->upload(be, a->end, a->host_end, (size_t)a->N * sizeof *a->end);
}

static void attention(struct backend *be, real_t *out, float *lse, const real_t *qkv,
                      struct attention_shape s) {
    struct cuda_state *state = cuda_state(be);
    struct cuda_attention *a = state->attention;
    if (a->N == 0) return;
#ifdef HAVE_CUDNN
    if (a->plan) {
        cudnn_attention_forward(a->plan, out, lse, qkv, a->table, state->scratch, a->N);
        return;
    }
#endif
    flash_forward(state->real, out, lse, qkv, a->begin, a->end, a->N, sizes_of(s), state->stream);
}

static void attention_gradient(struct backend *be, real_t *dqkv, const real_t *dout,
                               const real_t *out, const float *lse, const real_t *qkv,
                               struct attention_shape s) {
    struct cuda_state *state = cuda_state(be);
    struct cuda_attention *a = state->attention;
    if (a->N == 0) return;
#ifdef HAVE_CUDNN
    if (a->plan) {
        cudnn_attention_backward(a->plan, dqkv, dout, out, lse, qkv, a->table, state->scratch,
                                 a->N);
        return;
    }
#endif
    flash_backward(state->real, dqkv, dout, out, lse, qkv, a->begin, a->end, state->scratch, a->N,
                   sizes_of(s), state->stream);
}

#ifdef HAVE_CUDNN
/* Plans for few and for many documents, if they are not the same; 0: why says why there are none.
 */
static int plan_cudnn(struct cuda_state *s, char *why, size_t size) {
    struct cuda_attention *a = s->attention;
    for (int i = 0; i < CUDA_PLANS; i++) {
        int documents = cuda_cudnn_documents(&s->work, i);
        if (i > 0 && documents == cuda_cudnn_documents(&s->work, i - 1)) break;
        a->plans[i] = cudnn_attention_new(a->on, cuda_cudnn_sizes(&s->work, documents), why, size);
        if (!a->plans[i] && i == 0) return 0;
    }
    why[0] = 0; /* the one for few serves alone */
    return 1;
}
#endif

/* cuDNN's plans, or why there are none. */
static void open_cudnn(struct backend *be, char *why, size_t size) {
#ifdef HAVE_CUDNN
    struct cuda_state *s = cuda_state(be);
    struct cuda_attention *a = s->attention;
    size_t most = 0;
    if (!cuda_cudnn_serves(&s->work, be->real_bytes, &s->options, why, size)) return;
    if (!cudnn_graph_open(&a->on, s->stream, why, size)) return;
    if (!plan_cudnn(s, why, size)) return;
    for (int i = 0; i < CUDA_PLANS; i++)
        if (a->plans[i]) most = cudnn_attention_table_bytes(a->plans[i]);
    a->table = be->alloc(be, most);
    a->host_table = memory_alloc(most);
    cudnn_attention_describe(a->plans[0], a->name, sizeof a->name);
#else
    (void)be;
    snprintf(why, size, "this build has none");
#endif
}

static void close_cudnn(struct backend *be) {
#ifdef HAVE_CUDNN
    struct cuda_attention *a = cuda_state(be)->attention;
    be->release(be, a->table);
    memory_free(a->host_table);
    a->table = a->host_table = NULL;
    for (int i = 0; i < CUDA_PLANS; i++) {
        cudnn_attention_free(a->plans[i]);
        a->plans[i] = NULL;
    }
    cudnn_graph_close(&a->on);
#else
    (void)be;
#endif
}

/* cuDNN on all ranks, or on none. */
static void choose(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    char why[200] = "";
    open_cudnn(be, why, sizeof why);
    (void)cudaGetLastError(); /* of plans that could not be made */
    if (agree_any(be->grid, why[0] != 0)) {
        if (be->grid->rank == 0 && s->options.attention == ATTENTION_CUDNN)
            die_user(EXIT_CONFIG, "engine.attention: cudnn: %s",
                     why[0] ? why : "the GPU of another rank does not serve");
        close_cudnn(be);
        snprintf(s->attention->name, sizeof s->attention->name, "own");
    }
    user_agree();
}

void cuda_attention_reserve(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_attention *a = s->attention = memory_alloc(sizeof *a);
    size_t n = (size_t)s->work.N + 1;
    snprintf(a->name, sizeof a->name, "own");
    struct cuda_rooms rooms = cuda_rooms_of(&s->work, be->real_bytes, 0);
    a->begin = be->alloc(be, rooms.bytes[CUDA_ROOM_BEGIN]);
    a->end = be->alloc(be, rooms.bytes[CUDA_ROOM_END]);
    a->host_begin = memory_alloc_array(n, sizeof *a->host_begin);
    a->host_end = memory_alloc_array(n, sizeof *a->host_end);
    if (s->options.attention != ATTENTION_OWN && s->work.N > 0) choose(be);
}

size_t cuda_attention_scratch(const struct backend *be) {
    const struct cuda_state *s = cuda_state(be);
    size_t most = cuda_own_scratch(&s->work);
#ifdef HAVE_CUDNN
    const struct cuda_attention *a = s->attention;
    for (int i = 0; i < CUDA_PLANS; i++)
        if (a->plans[i] && cudnn_attention_scratch(a->plans[i]) > most)
            most = cudnn_attention_scratch(a->plans[i]);
#endif
    return most;
}

const char *cuda_attention_name(const struct backend *be) {
    return cuda_state(be)->attention->name;
}

int cuda_attention_choice(const struct backend *be) {
#ifdef HAVE_CUDNN
    const struct cuda_attention *a = cuda_state(be)->attention;
    for (int i = 0; i < CUDA_PLANS; i++)
        if (a->plan && a->plan == a->plans[i]) return i + 1;
    return 0;
#else
    (void)be;
    return 0;
#endif
}

void cuda_fill_attention(struct backend *be) {
    be->documents = documents;
    be->attention = attention;
    be->attention_backward = attention_gradient;
}

void cuda_attention_close(struct backend *be) {
    struct cuda_attention *a = cuda_state(be)->attention;
    if (!a) return;
    close_cudnn(be);
    be->release(be, a->begin);
    be->release(be, a->end);
    memory_free(a->host_begin);
    memory_free(a->host_end);
    memory_free(a);
}
