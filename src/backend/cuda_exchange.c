/* Between tokens and the rows of the experts. On one rank nothing travels: the tokens are sorted by
 * expert. Above, two ways lead to other ranks (cuda_exchange.h). Where the products of the experts
 * are asked for one by one the host waits for their rows. */
#include "config.h"
#include "backend/cuda_exchange.h"
#include "backend/cuda_window.h"
#include "base/log.h"
#include "base/memory.h"
#include "low_rows.h"
#include "peer_move.h"
#include "permute.h"
#include "route_rows.h"
#include <assert.h>

static struct cuda_moe_rooms rooms_of(const struct backend *be, struct moe_shape s) {
    return cuda_moe_rooms_of(s, be->row_unit, be->grid->ep_size, cuda_state(be)->peer != NULL);
}

static size_t moe_rows(struct backend *be, struct moe_shape s) {
    return rooms_of(be, s).rows;
}

/* NULL for none. */
static void *room(struct backend *be, size_t bytes) {
    return bytes ? be->alloc(be, bytes) : NULL;
}

static struct moe *moe_new(struct backend *be, struct moe_shape s) {
    struct moe *m = memory_alloc(sizeof *m);
    struct cuda_moe_rooms rooms = rooms_of(be, s);
    const size_t *bytes = rooms.bytes, P = (size_t)be->grid->ep_size;
    m->s = s, m->n_ranks = be->grid->ep_size, m->n_local = s.E / m->n_ranks, m->rows = rooms.rows;
    m->offsets = room(be, bytes[CUDA_MOE_OFFSETS]);
    m->ends = room(be, bytes[CUDA_MOE_ENDS]);
    m->row_of = room(be, bytes[CUDA_MOE_ROW_OF]);
    m->row_p = be->alloc_shared(be, bytes[CUDA_MOE_ROW_P]);
    m->first = room(be, bytes[CUDA_MOE_FIRST]);
    m->copy_of = room(be, bytes[CUDA_MOE_COPY_OF]);
    m->place_of = room(be, bytes[CUDA_MOE_PLACE_OF]);
    m->sent_first = memory_alloc_array(P + 1, sizeof *m->sent_first);
    m->got_first = memory_alloc_array(P + 1, sizeof *m->got_first);
    if (!cuda_state(be)->grouped)
        cuda_check(cudaMallocHost((void **)&m->host_offsets, bytes[CUDA_MOE_OFFSETS]));
    return m;
}

static void moe_free(struct backend *be, struct moe *m) {
    if (!m) return;
    void *const all[] = {m->offsets, m->ends,    m->row_of,   m->row_p,
                         m->first,   m->copy_of, m->place_of, m->stash.base};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) be->release(be, all[i]);
    if (m->host_offsets) cuda_check(cudaFreeHost(m->host_offsets));
    memory_free(m->sent_first);
    memory_free(m->got_first);
    memory_free(m);
}

/* With peer memory every rank knows where the others' rows begin. */
static size_t n_places(const struct backend *be) {
    return 1 + (size_t)(cuda_state(be)->peer ? be->grid->ep_size : 1);
}

static void moe_stash(struct backend *be, struct moe *m, struct stash s) {
    size_t n = n_places(be);
    assert(!m->host_offsets && s.rows >= m->rows && (s.z == 0 || s.z >= m->rows));
    m->stash.base = be->alloc(be, cuda_stash_bytes(n));
    m->stash.ends = m->stash.base + n;
    m->stash.before = s.before ? s.before->stash.ends : NULL;
    m->stash.rows = (int)s.rows, m->stash.z = (int)s.z;
    m->stash.overflow = s.overflow, m->stash.need = s.need;
}

struct stash_place cuda_stash_place(const struct backend *be, const struct moe *m) {
    struct stash_place p = m->stash;
    p.again = be->rows_again;
    return p;
}

const int32_t *cuda_stash_base(const struct backend *be, const struct moe *m) {
    const int32_t *all = cuda_stash_bases(m);
    return all && cuda_state(be)->peer ? all + be->grid->ep_rank : all;
}

struct cuda_rows cuda_moe_rows(const struct backend *be, const struct moe *m) {
    return (struct cuda_rows){.n_local = m->n_local,
                              .shape = m->s,
                              .most = m->rows,
                              .offsets = m->offsets,
                              .row_p = m->row_p,
                              .x_base = cuda_stash_base(be, m),
                              .z_base = m->stash.z ? m->stash.base : NULL,
                              .x_most = (size_t)m->stash.rows,
                              .z_most = (size_t)m->stash.z,
                              .host_offsets = m->host_offsets};
}

/* ---- one rank ---- */

static void spread_here(struct backend *be, struct moe *m, real_t *rows, const real_t *x, int N) {
    struct cuda_state *s = cuda_state(be);
    if (be->low_rows)
        low_rows_round(s->real, rows, x, m->row_of, m->offsets, m->ends, N, m->n_local, m->s.A,
                       m->s.D, s->stream);
    else
        permute_spread(s->real, rows, /*base=*/NULL, x, m->row_of, m->offsets, m->ends, N,
                       m->n_local, m->s.A, m->s.D, s->stream);
}

static void gather_here(struct backend *be, struct moe *m, real_t *out, const real_t *rows, int N) {
    struct cuda_state *s = cuda_state(be);
    permute_gather(s->real, out, rows, m->row_of, N, m->s.A, m->s.D, s->stream);
}

static void gather_p_here(struct backend *be, struct moe *m, float *dp, const float *dp_rows,
                          int N) {
    permute_gather_values(dp, dp_rows, m->row_of, N, m->s.A, cuda_state(be)->stream);
}

static void dispatch_here(struct backend *be, struct moe *m, real_t *rows, const real_t *x,
                          const struct routing *r, int N) {
    struct cuda_state *s = cuda_state(be);
    be->sent_rows[0] += (uint64_t)N;
    route_rows(m->offsets, m->ends, m->row_of, m->row_p, r->ids, r->p, s->scratch, N, m->n_local,
               m->s.A, be->row_unit, s->stream);
    spread_here(be, m, rows, x, N);
}

static const struct cuda_ways here = {.dispatch = dispatch_here,
                                      .spread = spread_here,
                                      .gather = gather_here,
                                      .gather_p = gather_p_here};

/* ---- the choice ---- */

static const struct cuda_ways *ways(const struct backend *be) {
    return cuda_state(be)->peer    ? &cuda_peer_ways
           : be->grid->ep_size > 1 ? &cuda_travel_ways
                                   : &here;
}

/* The deck may ask for peer memory, or have nothing against it. */
static void without_peer(const struct backend *be, const char *why) {
    enum exchange_engine asked = cuda_state(be)->options.exchange;
    if (be->grid->rank == 0 && asked == EXCHANGE_PEER)
        die_user(EXIT_CONFIG, "engine.exchange: peer: %s", why);
    user_agree();
    if (asked == EXCHANGE_AUTO) log_info("exchange", "NCCL, not peer memory: %s", why);
}

void cuda_exchange_reserve(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    char reason[200], *why = NULL;
    if (be->grid->ep_size == 1) return;
    if (cuda_peer_serves(&s->work, be->grid, &s->options, reason, sizeof reason))
        why = cuda_peer_open(be);
    else
        why = memory_string(reason);
    if (why) without_peer(be, why);
    memory_free(why);
    if (s->peer)
        cuda_peer_reserve(be);
    else
        cuda_travel_reserve(be);
}

void cuda_exchange_close(struct backend *be) {
    cuda_travel_close(be);
    cuda_peer_close(be);
}

const char *cuda_exchange_name(const struct backend *be) {
    return cuda_state(be)->peer ? "peer memory" : be->grid->ep_size > 1 ? "NCCL" : "none: one rank";
}

static void *alloc_shared(struct backend *be, size_t bytes) {
    return cuda_state(be)->peer ? cuda_window_alloc(be, be->grid->ep, bytes) : be->alloc(be, bytes);
}

static const uint64_t *sent(struct backend *be) {
    if (cuda_state(be)->peer) cuda_peer_sent(be, be->sent_rows);
    return be->sent_rows;
}

/* ---- the table ---- */

static void moe_dispatch(struct backend *be, struct moe *m, real_t *rows, const real_t *x,
                         const struct routing *r, int N) {
    assert(N <= m->s.capacity);
    ways(be)->dispatch(be, m, rows, x, r, N);
    if (m->host_offsets)
        be->download(be, m->host_offsets, m->offsets,
                     ((size_t)m->n_local + 1) * sizeof *m->offsets);
}

static void moe_combine(struct backend *be, struct moe *m, real_t *out, const real_t *y, int N) {
    ways(be)->gather(be, m, out, y, N);
}

static void moe_combine_backward(struct backend *be, struct moe *m, real_t *dy, const real_t *dout,
                                 int N) {
    ways(be)->spread(be, m, dy, dout, N);
}

static void moe_dispatch_backward(struct backend *be, struct moe *m, real_t *dx, float *dp,
                                  const real_t *drows, const float *dp_rows, int N) {
    ways(be)->gather(be, m, dx, drows, N);
    ways(be)->gather_p(be, m, dp, dp_rows, N);
}

void cuda_fill_exchange(struct backend *be) {
    be->alloc_shared = alloc_shared;
    be->sent = sent;
    be->moe_new = moe_new;
    be->moe_free = moe_free;
    be->moe_rows = moe_rows;
    be->moe_stash = moe_stash;
    be->moe_dispatch = moe_dispatch;
    be->moe_combine = moe_combine;
    be->moe_combine_backward = moe_combine_backward;
    be->moe_dispatch_backward = moe_dispatch_backward;
}
