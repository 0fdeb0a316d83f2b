#include "config.h"
#include "backend/cuda_sizes.h"
#include "base/memory.h"
#include "grouped_sizes.h"
#include "mxfp8_scales.h"
#include "scratch.h"
#include <stdio.h>

enum { LOGITS = 512 << 20 /* bytes of FP32 logits at a time, about */ };

/* Of cuDNN's plan for many: enough for windows of 32 bases at N 8192, where it is 5 % slower than
 * one for 4. With N 2048 half of a small model's time was spent on documents that were not there.
 */
enum { DOCUMENTS = 256 };

static size_t most(size_t a, size_t b) {
    return a > b ? a : b;
}

static int chunk_of(const struct work *w) {
    int chunk = (int)((size_t)LOGITS / ((size_t)w->V * sizeof(float)) / 128 * 128);
    if (chunk < 128) chunk = 128;
    return chunk > w->N ? w->N : chunk;
}

struct cuda_rooms cuda_rooms_of(const struct work *w, size_t real_bytes, size_t engine_scratch) {
    struct cuda_rooms r = {0};
    size_t *bytes = r.bytes;
    bytes[CUDA_ROOM_STAGED] = real_bytes == sizeof(float) ? 0 : CUDA_STAGED * sizeof(float);
    bytes[CUDA_ROOM_WORKSPACES] = (size_t)CUDA_WAYS * CUDA_WORKSPACE;
    if (!w) return r;
    size_t N = (size_t)w->N, K = (size_t)w->attention.K, logits;
    r.chunk = chunk_of(w);
    logits = (size_t)r.chunk * (size_t)w->V;
    bytes[CUDA_ROOM_SCRATCH] = most(most(most(embed_scratch(w->N, w->D), norm_scratch(w->D)),
                                         most(route_scratch(w->E), sum_scratch())),
                                    engine_scratch);
    bytes[CUDA_ROOM_LOGITS] = logits * sizeof(float);
    bytes[CUDA_ROOM_DLOGITS] = w->backward ? logits * real_bytes : 0;
    bytes[CUDA_ROOM_LOSSES] = N * sizeof(double);
    bytes[CUDA_ROOM_ROPE] = N * K * sizeof(float);
    bytes[CUDA_ROOM_BEGIN] = bytes[CUDA_ROOM_END] = (N + 1) * sizeof(int32_t);
    return r;
}

size_t cuda_experts_scratch(const struct work *w, int grouped, int ep_size) {
    struct moe_shape s = {.capacity = w->N, .E = w->E, .A = w->A};
    size_t rows = cuda_moe_rooms_of(s, cuda_row_unit(1, w->low, w->way), ep_size, 0).rows,
           low = w->low == LOW_FP8_BLOCK ? fp8_parts(rows, w->F) : 0,
           statistics = w->low != LOW_NONE ? low_statistics_scratch() : 0;
    if (!w->backward) return 0;
    return most(statistics, grouped ? most(grouped_parts(rows, w->F), low) : 0);
}

size_t cuda_own_scratch(const struct work *w) {
    return w->backward ? flash_scratch(w->N, w->attention.H) : 0;
}

int cuda_cudnn_documents(const struct work *w, int plan) {
    int longest = w->longest > 0 && w->longest < w->N ? w->longest : w->N,
        few = longest ? 2 * ((w->N + longest - 1) / longest) : 1,
        many = w->N < DOCUMENTS ? w->N : DOCUMENTS;
    return plan == 0 && few < many ? few : many;
}

struct cudnn_attention_sizes cuda_cudnn_sizes(const struct work *w, int documents) {
    return (struct cudnn_attention_sizes){.N = w->N,
                                          .longest = w->N,
                                          .documents = documents,
                                          .H = w->attention.H,
                                          .G = w->attention.G,
                                          .K = w->attention.K};
}

size_t cuda_cudnn_scratch(const struct work *w, size_t workspace) {
    struct cudnn_attention_sizes s = cuda_cudnn_sizes(w, 1);
    return most(cudnn_scratch_of(&s, workspace).bytes, cuda_own_scratch(w));
}

int cuda_cudnn_serves(const struct work *w, size_t real_bytes, const struct backend_options *o,
                      char *why, size_t size) {
    struct cudnn_attention_sizes s = cuda_cudnn_sizes(w, 1);
    const char *reason = NULL;
    if (real_bytes == sizeof(float)) reason = "it computes in BF16";
    if (w->attention.window) reason = "it has no sliding window here";
    if (o->deterministic) reason = "its backward pass does not repeat to the bit";
    if (reason) snprintf(why, size, "%s", reason);
    return !reason && cudnn_sizes_serve(&s, why, size);
}

int cuda_grouped_serves(const struct work *w, size_t real_bytes, const struct backend_options *o,
                        char *why, size_t size) {
    const char *reason = w->capability != 90 ? "it needs compute capability 9.0" : NULL;
    if (real_bytes == sizeof(float)) reason = "they compute in BF16";
    if (w->D % GROUPED_UNIT) reason = "model.hidden_size must be a multiple of 64";
    if (w->F % GROUPED_UNIT) reason = "model.intermediate_size must be a multiple of 64";
    if (w->low == LOW_MXFP8 && w->way == LOW_FAST)
        reason = "mxfp8 is multiplied by cuBLASLt on this compute capability";
    if (o->experts == EXPERTS_CUBLASLT) reason = "engine.experts says so";
    if (reason) snprintf(why, size, "%s", reason);
    return !reason;
}

enum low_way cuda_low_way(int capability, enum low low, int emulate) {
    if (low == LOW_MXFP8) return capability >= 100 && !emulate ? LOW_FAST : LOW_EMULATED;
    return capability == 90 && low == LOW_FP8_BLOCK ? LOW_FAST : LOW_LACKING;
}

struct work cuda_work_on(struct work w, int capability, const struct backend_options *o) {
    w.capability = capability;
    w.way = cuda_low_way(capability, w.low, o->emulate);
    return w;
}

/* A tile of scales is of one expert. */
int cuda_row_unit(int grouped, enum low low, enum low_way way) {
    if (low == LOW_FP8_BLOCK) return GROUPED_FP8_ROWS;
    if (low == LOW_MXFP8 && way == LOW_FAST) return MXFP8_TILE_ROWS;
    return grouped ? GROUPED_ROWS : low == LOW_MXFP8 ? MXFP8_BLOCK : 1;
}

/* Codes, and a scale for each `block` of them at most, which begin at a multiple of 256 bytes. */
static size_t low_codes(size_t elements, size_t block) {
    return cuda_scales_at(elements) + (elements / block * sizeof(float) + 255) / 256 * 256;
}

static size_t low_matrix(size_t rows, size_t cols) {
    return low_codes(rows * cols, GROUPED_FP8_UNIT);
}

/* Numbers of the widest operand of projections that a token is: x, or the gradient of queries, keys
 * and values. */
static size_t token_width(const struct work *w) {
    const struct attention_shape *a = &w->attention;
    return most((size_t)w->D, (size_t)(a->H + 2 * a->G) * (size_t)a->K);
}

/* Of operands of projections in fp8_block. */
static size_t token_rows(int N) {
    size_t unit = GROUPED_FP8_ROWS;
    return ((size_t)N + unit - 1) / unit * unit;
}

struct cuda_low_rooms cuda_low_rooms_of(const struct work *w, int ep_size) {
    struct moe_shape s = {.capacity = w->N, .E = w->E, .A = w->A};
    size_t tokens = token_rows(w->N),
           rows = cuda_moe_rooms_of(s, GROUPED_FP8_ROWS, ep_size, 0).rows, D = (size_t)w->D,
           F = (size_t)w->F, wide = token_width(w);
    struct cuda_low_rooms r = {0};
    if (w->low != LOW_FP8_BLOCK) return r;
    size_t *bytes = r.bytes;
    bytes[CUDA_LOW_ROWS] =
        most(low_matrix(rows, w->backward ? most(D, 2 * F) : D), low_matrix(tokens, wide));
    if (!w->backward) return r;
    bytes[CUDA_LOW_GRADIENTS] = most(low_matrix(rows, 2 * F), low_matrix(tokens, wide));
    bytes[CUDA_LOW_COLUMNS] = most(low_matrix(rows, most(D, F)), low_matrix(tokens, wide));
    bytes[CUDA_LOW_RESULTS] = low_matrix(rows, D);
    return r;
}

size_t cuda_low_copies(int n, int N, int K) {
    return 2 * low_codes((size_t)n * (size_t)N * (size_t)K,
                         (size_t)GROUPED_FP8_UNIT * GROUPED_FP8_UNIT);
}

int cuda_mxfp8_up_serves(const struct work *w, char *why, size_t size) {
    const char *reason = NULL;
    if (w->F % MXFP8_TILE_COLS)
        reason = "model.intermediate_size must be a multiple of 128 in mxfp8";
    if (w->D % MXFP8_TILE_COLS) reason = "model.hidden_size must be a multiple of 128 in mxfp8";
    if (w->capability != 100) reason = "it needs compute capability 10.0";
    if (reason) snprintf(why, size, "%s", reason);
    return !reason;
}

size_t cuda_mxfp8_bytes(size_t n, size_t rows, size_t cols) {
    return cuda_scales_at(mxfp8_codes(n, rows, cols)) + mxfp8_scales(n, rows, cols);
}

struct cuda_mxfp8_rooms cuda_mxfp8_rooms_of(const struct work *w, int ep_size) {
    struct moe_shape s = {.capacity = w->N, .E = w->E, .A = w->A};
    size_t N = (size_t)w->N, rows = cuda_moe_rooms_of(s, MXFP8_TILE_ROWS, ep_size, 0).rows,
           D = (size_t)w->D, F = (size_t)w->F, tokens = cuda_mxfp8_bytes(1, N, token_width(w));
    struct cuda_mxfp8_rooms r = {{0}};
    if (w->low != LOW_MXFP8 || w->way != LOW_FAST) return r;
    r.bytes[CUDA_MXFP8_ROWS] =
        most(cuda_mxfp8_bytes(1, rows, most(D, w->backward ? 2 * F : F)), tokens);
    if (!w->backward) return r;
    r.bytes[CUDA_MXFP8_GRADIENTS] = most(cuda_mxfp8_bytes(1, rows, most(D, 2 * F)), tokens);
    r.bytes[CUDA_MXFP8_COLUMNS] = most(cuda_mxfp8_bytes(1, rows, most(D, F)), tokens);
    return r;
}

/* Tokens' operands, and experts' rows, of which only the gradients of weights have two. */
struct cuda_emulate_rooms cuda_emulate_rooms_of(const struct work *w, int grouped, int ep_size) {
    enum { BF16 = 2 };
    struct moe_shape s = {.capacity = w->N, .E = w->E, .A = w->A};
    size_t N = (size_t)w->N, D = (size_t)w->D, F = (size_t)w->F,
           rows = cuda_moe_rooms_of(s, cuda_row_unit(grouped, w->low, w->way), ep_size, 0).rows,
           H = (size_t)w->attention.H * (size_t)w->attention.K;
    struct cuda_emulate_rooms r = {{0}};
    if (w->low != LOW_MXFP8 || w->way != LOW_EMULATED) return r;
    r.bytes[0] = BF16 * most(rows * most(D, w->backward ? 2 * F : F), N * token_width(w));
    r.bytes[1] = w->backward ? BF16 * most(rows * most(D, F), N * most(D, H)) : 0;
    return r;
}

size_t cuda_emulate_copies(int n, int N, int K) {
    enum { BF16 = 2 };
    return 2 * (size_t)n * (size_t)N * (size_t)K * BF16;
}

size_t cuda_low_bytes(const struct work *w, int n, int N, int K) {
    if (w->low == LOW_FP8_BLOCK) return cuda_low_copies(n, N, K);
    return w->way == LOW_EMULATED ? cuda_emulate_copies(n, N, K)
                                  : 2 * cuda_mxfp8_bytes((size_t)n, (size_t)N, (size_t)K);
}

size_t cuda_low_kept_bytes(enum low low, int N, int D) {
    return low == LOW_FP8_BLOCK ? low_matrix(token_rows(N), (size_t)D) : 0;
}

size_t cuda_low_z_bytes(const struct backend *be, enum low low, size_t R, int F) {
    size_t cols = 2 * (size_t)F;
    return be->low_z && low == LOW_FP8_BLOCK ? low_matrix(R, cols) : R * cols * be->real_bytes;
}

static size_t least(int a, int b) {
    return (size_t)(a < b ? a : b);
}

/* Tokens may all choose experts of the same rank. */
struct cuda_moe_rooms cuda_moe_rooms_of(struct moe_shape s, int row_unit, int ep_size, int peer) {
    size_t unit = (size_t)row_unit, N = (size_t)s.capacity, A = (size_t)s.A,
           n_local = (size_t)(s.E / ep_size), arrivals = N * (size_t)ep_size,
           most = arrivals * least(s.A, (int)n_local);
    struct cuda_moe_rooms r = {.rows = (most + n_local * (unit - 1)) / unit * unit};
    r.bytes[CUDA_MOE_OFFSETS] = (n_local + 1) * sizeof(int32_t);
    r.bytes[CUDA_MOE_ENDS] = n_local * sizeof(int32_t);
    r.bytes[CUDA_MOE_ROW_OF] = arrivals * A * sizeof(int32_t);
    r.bytes[CUDA_MOE_ROW_P] = r.rows * sizeof(float);
    if (peer) {
        r.bytes[CUDA_MOE_ROW_OF] = N * A * sizeof(int32_t);
        r.bytes[CUDA_MOE_ROW_P] = r.rows * (sizeof(float) + sizeof(int32_t)); /* and the chain */
    }
    if (ep_size == 1 || peer) return r;
    r.bytes[CUDA_MOE_FIRST] = ((size_t)ep_size + 1) * sizeof(int32_t);
    r.bytes[CUDA_MOE_COPY_OF] = r.bytes[CUDA_MOE_PLACE_OF] = N * A * sizeof(int32_t);
    return r;
}

int cuda_stashes(int grouped, const struct backend_options *o, int ep_size) {
    return grouped && !o->unfused && ep_size > 1;
}

size_t cuda_stash_bytes(size_t n) {
    return 2 * n * sizeof(int32_t);
}

struct cuda_travel_rooms cuda_travel_rooms_of(const struct work *w, size_t real_bytes,
                                              int ep_size) {
    size_t N = (size_t)w->N, copies = N * least(w->A, ep_size), arrivals = N * (size_t)ep_size,
           row = (size_t)w->D * real_bytes, list = (size_t)w->A * sizeof(int32_t);
    if (ep_size == 1) return (struct cuda_travel_rooms){0};
    return (struct cuda_travel_rooms){.copies = copies * row,
                                      .arrivals = arrivals * row,
                                      .copy_lists = copies * list,
                                      .got_lists = arrivals * list};
}

int cuda_peer_serves(const struct work *w, const struct grid *g, const struct backend_options *o,
                     char *why, size_t size) {
    int serves = 0;
    if (o->exchange == EXCHANGE_NCCL)
        snprintf(why, size, "engine.exchange says so");
    else if (w->A > PEER_CHOICES)
        snprintf(why, size, "%d experts a token, it serves %d", w->A, PEER_CHOICES);
    else if (g->ep_size > PEERS)
        snprintf(why, size, "%d ranks in a group, it serves %d", g->ep_size, PEERS);
    else if (g->ep_nodes > 1)
        snprintf(why, size, "the ranks of a group are on several hosts");
    else
        serves = 1;
    return serves;
}

int cuda_pull_serves(const struct grid *g, const struct backend_options *o, char *why,
                     size_t size) {
    int serves = 0;
    if (o->collectives == EXCHANGE_NCCL)
        snprintf(why, size, "engine.collectives says so");
    else if (g->n_nodes > 1)
        snprintf(why, size, "the ranks are on several hosts");
    else if (g->n_ranks > PEERS)
        snprintf(why, size, "%d ranks, it serves %d", g->n_ranks, PEERS);
    else
        serves = 1;
    return serves;
}

struct cuda_order_rooms cuda_order_rooms_of(const struct work *w, int ep_size) {
    size_t choices = (size_t)w->N * (size_t)w->A, E = (size_t)w->E;
    return (struct cuda_order_rooms){.sent = (size_t)ep_size * sizeof(unsigned long long),
                                     .begins = (E + 1) * sizeof(int32_t),
                                     .shift = E * sizeof(int32_t),
                                     .choices = choices * sizeof(int32_t)};
}

size_t cuda_shared_bytes(size_t bytes) {
    enum { PIECE = 2 << 20 };
    return (bytes + 256 + PIECE - 1) / PIECE * PIECE - 256; /* cuda_alloc_bytes adds them */
}

/* Every room begins at a multiple of 256 bytes, and has a place behind it. */
size_t cuda_alloc_bytes(size_t bytes) {
    return (bytes + 255) / 256 * 256 + 256;
}

/* Blocks that share a scale are whole. */
static char *low_refusal(const struct work *w) {
    int unit = w->low == LOW_MXFP8 ? MXFP8_BLOCK : GROUPED_FP8_UNIT;
    const struct attention_shape a = w->attention;
    const struct {
        const char *key;
        int value;
    } sizes[] = {{"model.hidden_size", w->D},
                 {"model.intermediate_size", w->F},
                 {"model.num_attention_heads * model.head_dim", a.H * a.K},
                 {"2 * model.num_key_value_heads * model.head_dim", 2 * a.G * a.K}};
    for (int i = 0; i < 4; i++)
        if (sizes[i].value % unit)
            return memory_format("%s is %d: with a precision.recipe of eight bits it must be a "
                                 "multiple of %d on a GPU",
                                 sizes[i].key, sizes[i].value, unit);
    return NULL;
}

/* The kernels move 16 bytes at a time. */
char *cuda_work_refusal(const struct work *w) {
    const struct {
        const char *key;
        int value, unit, most;
    } sizes[] = {{"model.hidden_size", w->D, 8, 16384},
                 {"model.intermediate_size", w->F, 8, 0},
                 {"model.head_dim", w->attention.K, 8, 256},
                 {"model.num_local_experts", w->E, 1, 256}};
    for (int i = 0; i < 4; i++) {
        if (sizes[i].value % sizes[i].unit)
            return memory_format("%s is %d: on a GPU it must be a multiple of %d", sizes[i].key,
                                 sizes[i].value, sizes[i].unit);
        if (sizes[i].most && sizes[i].value > sizes[i].most)
            return memory_format("%s is %d: on a GPU it may be %d at most", sizes[i].key,
                                 sizes[i].value, sizes[i].most);
    }
    return w->low == LOW_NONE ? NULL : low_refusal(w);
}
