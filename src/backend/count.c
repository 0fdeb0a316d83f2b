#include "config.h"
#include "backend/count.h"
#include "backend/cpu.h"
#include "backend/cuda_sizes.h"
#include "base/memory.h"
#include <string.h>

/* A build without CUDA plans for one that has everything. */
#if defined HAVE_CUDA && !defined HAVE_CUDNN
#define BUILD_MAY_HAVE_CUDNN 0
#else
#define BUILD_MAY_HAVE_CUDNN 1
#endif

/* Addresses are handed out in order from a place where no memory lies. */
#define FIRST_ADDRESS ((uintptr_t)1 << 44)

/* Device memory comes in pages; what is smaller than half of one shares them. */
enum { DEVICE_PAGE = 2 << 20 };

struct record {
    uintptr_t at;
    size_t bytes;
    enum count_kind kind;
    int taken;
};

struct count {
    int cuda;
    int peer; /* tokens travel over peer memory */
    int pull; /* collectives beside other work do */
    struct backend_options options;
    struct record *list; /* [n], by address */
    size_t n, room;
    uintptr_t next;
    enum count_kind kind; /* of who asks now */
    const char *attention;
    int capability;
    struct work work;                                               /* what was reserved */
    struct moe *(*moe_new)(struct backend *be, struct moe_shape s); /* the real one's */
};

static void *alloc(struct backend *be, size_t bytes) {
    struct count *c = be->state;
    if (c->n == c->room) {
        c->room = 2 * c->room + 64;
        struct record *more = memory_alloc_array(c->room, sizeof *more);
        if (c->n) memcpy(more, c->list, c->n * sizeof *more);
        memory_free(c->list);
        c->list = more;
    }
    c->list[c->n++] = (struct record){.at = c->next, .bytes = bytes, .kind = c->kind};
    void *p = (void *)c->next;
    c->next += bytes / 64 * 64 + 64;
    return p;
}

static void release(struct backend *be, void *p) {
    (void)be;
    (void)p;
}

/* ---- cuda ---- */

static void alloc_travel(struct backend *be, const struct work *w) {
    struct cuda_travel_rooms r = cuda_travel_rooms_of(w, be->real_bytes, be->grid->ep_size);
    const size_t bytes[] = {r.copies,     r.arrivals,  r.copy_lists,
                            r.copy_lists, r.got_lists, r.got_lists};
    for (int i = 0; i < 6; i++)
        if (bytes[i]) alloc(be, bytes[i]);
}

static void alloc_order(struct backend *be, const struct work *w) {
    struct cuda_order_rooms r = cuda_order_rooms_of(w, be->grid->ep_size);
    const size_t bytes[] = {cuda_shared_bytes(1),
                            r.sent,
                            r.begins,
                            r.shift,
                            r.choices,
                            r.choices}; /* first the board */
    for (int i = 0; i < 6; i++) alloc(be, bytes[i]);
}

static void *alloc_shared(struct backend *be, size_t bytes) {
    const struct count *c = be->state;
    return alloc(be, c->peer ? cuda_shared_bytes(bytes) : bytes);
}

static void *alloc_beside(struct backend *be, size_t bytes) {
    const struct count *c = be->state;
    return alloc(be, c->pull ? cuda_shared_bytes(bytes) : bytes);
}

static void alloc_pull(struct backend *be) {
    const size_t bytes[] = {CUDA_PULL_ROOM, CUDA_PULL_ROOM, cuda_shared_bytes(CUDA_PULL_BOARD)};
    for (int i = 0; i < 3; i++) alloc(be, bytes[i]);
}

static void reserve_cuda(struct backend *be, struct work w) {
    struct count *c = be->state;
    char why[200];
    w = cuda_work_on(w, c->capability, &c->options);
    int cudnn = BUILD_MAY_HAVE_CUDNN && c->options.attention != ATTENTION_OWN &&
                cuda_cudnn_serves(&w, be->real_bytes, &c->options, why, sizeof why);
    int grouped = cuda_grouped_serves(&w, be->real_bytes, &c->options, why, sizeof why);
    size_t attention = cudnn ? cuda_cudnn_scratch(&w, 0) : cuda_own_scratch(&w),
           experts = cuda_experts_scratch(&w, grouped, be->grid->ep_size);
    struct cuda_rooms rooms =
        cuda_rooms_of(&w, be->real_bytes, attention > experts ? attention : experts);
    c->attention = cudnn ? "cudnn" : "own";
    c->work = w;
    be->row_unit = cuda_row_unit(grouped, w.low, w.way);
    be->stashes = cuda_stashes(grouped, &c->options, be->grid->ep_size);
    c->kind = COUNT_WORKSPACE;
    for (int i = 0; i < N_CUDA_ROOMS; i++)
        if (rooms.bytes[i]) alloc(be, rooms.bytes[i]);
    struct cuda_low_rooms low = cuda_low_rooms_of(&w, be->grid->ep_size);
    for (int i = 0; i < N_CUDA_LOW_ROOMS; i++)
        if (low.bytes[i]) alloc(be, low.bytes[i]);
    struct cuda_emulate_rooms emulate = cuda_emulate_rooms_of(&w, grouped, be->grid->ep_size);
    for (int i = 0; i < 2; i++)
        if (emulate.bytes[i]) alloc(be, emulate.bytes[i]);
    struct cuda_mxfp8_rooms mxfp8 = cuda_mxfp8_rooms_of(&w, be->grid->ep_size);
    for (int i = 0; i < N_CUDA_MXFP8_ROOMS; i++)
        if (mxfp8.bytes[i]) alloc(be, mxfp8.bytes[i]);
    c->peer = be->grid->ep_size > 1 && cuda_peer_serves(&w, be->grid, &c->options, why, sizeof why);
    c->kind = COUNT_EXCHANGE;
    if (c->peer)
        alloc_order(be, &w);
    else
        alloc_travel(be, &w);
    c->pull = w.beside && be->grid->n_ranks > 1 &&
              cuda_pull_serves(be->grid, &c->options, why, sizeof why);
    if (c->pull) alloc_pull(be);
    c->kind = COUNT_MODEL;
}

static size_t moe_rows_cuda(struct backend *be, struct moe_shape s) {
    const struct count *c = be->state;
    return cuda_moe_rooms_of(s, be->row_unit, be->grid->ep_size, c->peer).rows;
}

static struct moe *moe_new_cuda(struct backend *be, struct moe_shape s) {
    const struct count *c = be->state;
    struct cuda_moe_rooms rooms = cuda_moe_rooms_of(s, be->row_unit, be->grid->ep_size, c->peer);
    size_t *row_p = &rooms.bytes[CUDA_MOE_ROW_P];
    if (c->peer) *row_p = cuda_shared_bytes(*row_p);
    for (int i = 0; i < N_CUDA_MOE_ROOMS; i++)
        if (rooms.bytes[i]) alloc(be, rooms.bytes[i]);
    return NULL;
}

static void moe_stash_cuda(struct backend *be, struct moe *m, struct stash s) {
    struct count *c = be->state;
    (void)m;
    (void)s;
    c->kind = COUNT_EXCHANGE;
    alloc(be, cuda_stash_bytes(1 + (size_t)(c->peer ? be->grid->ep_size : 1)));
    c->kind = COUNT_MODEL;
}

static size_t low_bytes_cuda(struct backend *be, int n, int N, int K) {
    return cuda_low_bytes(&((struct count *)be->state)->work, n, N, K);
}

static size_t low_z_bytes_cuda(struct backend *be, size_t R, int F) {
    return cuda_low_z_bytes(be, ((struct count *)be->state)->work.low, R, F);
}

static size_t low_kept_bytes_cuda(struct backend *be, int N, int D) {
    return cuda_low_kept_bytes(((struct count *)be->state)->work.low, N, D);
}

static void moe_free_cuda(struct backend *be, struct moe *m) {
    (void)be;
    (void)m;
}

/* ---- cpu ---- */

static void reserve_cpu(struct backend *be, struct work w) {
    struct count *c = be->state;
    struct cpu_rooms rooms = cpu_rooms_of(&w, be->grid->ep_size);
    c->attention = "own";
    c->kind = COUNT_WORKSPACE;
    alloc(be, rooms.scratch);
    alloc(be, rooms.rope);
    for (int i = 0; i < N_EXCHANGE_BUFFERS && rooms.exchange; i++) alloc(be, rooms.exchange);
    for (int i = 0; i < N_ROUNDED_BUFFERS; i++)
        if (rooms.rounded[i]) alloc(be, rooms.rounded[i]);
    c->kind = COUNT_MODEL;
}

/* ---- both ---- */

static struct moe *moe_new(struct backend *be, struct moe_shape s) {
    struct count *c = be->state;
    c->kind = COUNT_EXCHANGE;
    struct moe *m = c->moe_new(be, s);
    c->kind = COUNT_MODEL;
    return m;
}

static void count_close(struct backend *be) {
    struct count *c = be->state;
    memory_free(c->list);
    memory_free(c);
}

struct backend *count_open(const char *name, const struct grid *g, const struct backend_options *o,
                           int capability) {
    struct backend *be = memory_alloc(sizeof *be);
    struct count *c = be->state = memory_alloc(sizeof *c);
    c->cuda = strcmp(name, "cuda") == 0;
    c->options = *o;
    c->capability = capability;
    c->next = FIRST_ADDRESS;
    be->name = name;
    be->grid = g;
    be->real_bytes = c->cuda && !o->fp32 ? 2 : sizeof(float);
    be->row_unit = 1;
    be->close = count_close;
    cpu_fill_exchange(be);
    cpu_fill_low(be);
    if (c->cuda) {
        be->overlaps = 1;
        be->moe_new = moe_new_cuda;
        be->moe_rows = moe_rows_cuda;
        be->moe_stash = moe_stash_cuda;
        be->moe_free = moe_free_cuda;
        be->low_bytes = low_bytes_cuda;
        be->low_z_bytes = low_z_bytes_cuda;
        be->low_kept_bytes = low_kept_bytes_cuda;
    }
    c->moe_new = be->moe_new;
    be->moe_new = moe_new;
    be->alloc = alloc;
    be->alloc_shared = alloc_shared;
    be->alloc_beside = alloc_beside;
    be->release = release;
    be->reserve = c->cuda ? reserve_cuda : reserve_cpu;
    return be;
}

size_t count_take(struct backend *be, const void *p) {
    struct count *c = be->state;
    size_t low = 0, high = c->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c->list[middle].at < (uintptr_t)p)
            low = middle + 1;
        else
            high = middle;
    }
    struct record *r = c->list + low;
    if (low == c->n || r->at != (uintptr_t)p || r->taken || r->kind != COUNT_MODEL) return 0;
    r->taken = 1;
    return r->bytes;
}

size_t count_rest(const struct backend *be, enum count_kind kind) {
    const struct count *c = be->state;
    size_t sum = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->list[i].kind == kind && !c->list[i].taken) sum += c->list[i].bytes;
    return sum;
}

size_t count_overhead(const struct backend *be) {
    const struct count *c = be->state;
    size_t asked = 0, used = 0, shared = 0;
    for (size_t i = 0; i < c->n; i++) {
        size_t bytes = c->list[i].bytes, room = cuda_alloc_bytes(bytes);
        asked += bytes;
        if (!c->cuda)
            used += cpu_alloc_bytes(bytes);
        else if (room < DEVICE_PAGE / 2)
            shared += room;
        else
            used += (room + DEVICE_PAGE - 1) / DEVICE_PAGE * DEVICE_PAGE;
    }
    return used + (shared + DEVICE_PAGE - 1) / DEVICE_PAGE * DEVICE_PAGE - asked;
}

const char *count_attention(const struct backend *be) {
    return ((const struct count *)be->state)->attention;
}
