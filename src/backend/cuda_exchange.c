/* Between tokens and the rows of the experts. On one rank nothing travels. Above, a token travels
 * once to every rank that holds one of its experts, with the list of those experts and their
 * probabilities, and is laid out there once for each of them; results go the same way back, summed
 * by expert on the rank that computed them, then by rank on the rank that owns the token. What
 * travels goes through NCCL; for that the host waits for the number of copies once a layer. Where
 * the products of the experts are asked for one by one it waits for their rows as well. */
#include "config.h"
#include "backend/cuda.h"
#include "base/memory.h"
#include "grid/watchdog.h"
#include "permute.h"
#include "route_ranks.h"
#include "route_rows.h"
#include <assert.h>

struct moe {
    struct moe_shape s;
    int n_ranks, n_local;
    size_t rows;             /* R at most */
    int32_t *offsets, *ends; /* [n_local + 1], [n_local]: see route_rows.h */
    int32_t *row_of;         /* [arrivals, A] row of each choice; on one rank tokens are arrivals */
    float *row_p;            /* [R] */
    int32_t *host_offsets;   /* offsets in pinned memory; NULL with the grouped kernels */
    /* above one rank, see route_ranks.h */
    int32_t *first, *copy_of, *place_of;
    int *sent_first, *got_first; /* [n_ranks + 1] on the host: copies and arrivals of each rank */
};

/* Room for what travels, of one layer at a time. */
struct cuda_travel {
    real_t *copies, *arrivals;   /* [copies, D], [arrivals, D] */
    int32_t *copy_ids, *got_ids; /* [copies, A], [arrivals, A] */
    float *copy_p, *got_p;       /* the same */
};

static struct cuda_moe_rooms rooms_of(const struct backend *be, struct moe_shape s) {
    return cuda_moe_rooms_of(s, be->row_unit, be->grid->ep_size);
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
    m->row_p = room(be, bytes[CUDA_MOE_ROW_P]);
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
    void *const all[] = {m->offsets, m->ends,    m->row_of,  m->row_p,
                         m->first,   m->copy_of, m->place_of};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) be->release(be, all[i]);
    if (m->host_offsets) cuda_check(cudaFreeHost(m->host_offsets));
    memory_free(m->sent_first);
    memory_free(m->got_first);
    memory_free(m);
}

struct cuda_rows cuda_moe_rows(const struct moe *m) {
    return (struct cuda_rows){.n_local = m->n_local,
                              .shape = m->s,
                              .most = m->rows,
                              .offsets = m->offsets,
                              .row_p = m->row_p,
                              .host_offsets = m->host_offsets};
}

void cuda_exchange_reserve(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_travel_rooms rooms =
        cuda_travel_rooms_of(&s->work, be->real_bytes, be->grid->ep_size);
    if (be->grid->ep_size == 1) return;
    struct cuda_travel *t = s->travel = memory_alloc(sizeof *t);
    t->copies = be->alloc(be, rooms.copies), t->arrivals = be->alloc(be, rooms.arrivals);
    t->copy_ids = be->alloc(be, rooms.copy_lists), t->got_ids = be->alloc(be, rooms.got_lists);
    t->copy_p = be->alloc(be, rooms.copy_lists), t->got_p = be->alloc(be, rooms.got_lists);
}

void cuda_exchange_close(struct backend *be) {
    struct cuda_travel *t = cuda_state(be)->travel;
    if (!t) return;
    void *const all[] = {t->copies, t->arrivals, t->copy_ids, t->got_ids, t->copy_p, t->got_p};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) be->release(be, all[i]);
    memory_free(t);
}

const char *cuda_exchange_name(const struct backend *be) {
    return be->grid->ep_size > 1 ? "NCCL" : "none: one rank";
}

/* Copies become arrivals, or back. */
static void there(struct backend *be, struct moe *m, const void *from, void *to, size_t bytes) {
    cuda_exchange_rows(be, from, m->sent_first, to, m->got_first, bytes);
}

static void back(struct backend *be, struct moe *m, const void *from, void *to, size_t bytes) {
    cuda_exchange_rows(be, from, m->got_first, to, m->sent_first, bytes);
}

/* How many copies go to each rank, and how many come. The host waits. */
static void count_copies(struct backend *be, struct moe *m) {
    int P = m->n_ranks, *sent = memory_alloc_array(2 * (size_t)P, sizeof *sent), *got = sent + P;
    be->download(be, m->sent_first, m->first, ((size_t)P + 1) * sizeof *m->first);
    for (int r = 0; r < P; r++) {
        sent[r] = m->sent_first[r + 1] - m->sent_first[r];
        be->sent_rows[r] += (uint64_t)sent[r];
    }
    watchdog_exchange(1);
    MPI_Alltoall(sent, 1, MPI_INT, got, 1, MPI_INT, be->grid->ep);
    watchdog_exchange(0);
    m->got_first[0] = 0;
    for (int r = 0; r < P; r++) m->got_first[r + 1] = m->got_first[r] + got[r];
    memory_free(sent);
}

/* x[N, D] to the ranks where it is needed, and there to the rows. */
static void spread(struct backend *be, struct moe *m, real_t *rows, const real_t *x, int N) {
    struct cuda_state *s = cuda_state(be);
    int n = N;
    if (m->n_ranks > 1) {
        permute_spread(s->real, s->travel->copies, x, m->copy_of, NULL, NULL, N, 0, m->s.A, m->s.D,
                       s->stream);
        there(be, m, s->travel->copies, s->travel->arrivals, (size_t)m->s.D * be->real_bytes);
        x = s->travel->arrivals, n = m->got_first[m->n_ranks];
    }
    permute_spread(s->real, rows, x, m->row_of, m->offsets, m->ends, n, m->n_local, m->s.A, m->s.D,
                   s->stream);
}

/* out[N, D] = the sum over each token's rows, by expert within a rank, then by rank. */
static void gather(struct backend *be, struct moe *m, real_t *out, const real_t *rows, int N) {
    struct cuda_state *s = cuda_state(be);
    if (m->n_ranks == 1) {
        permute_gather(s->real, out, rows, m->row_of, N, m->s.A, m->s.D, s->stream);
        return;
    }
    permute_gather(s->real, s->travel->arrivals, rows, m->row_of, m->got_first[m->n_ranks], m->s.A,
                   m->s.D, s->stream);
    back(be, m, s->travel->arrivals, s->travel->copies, (size_t)m->s.D * be->real_bytes);
    permute_gather(s->real, out, s->travel->copies, m->copy_of, N, m->s.A, m->s.D, s->stream);
}

static void moe_dispatch(struct backend *be, struct moe *m, real_t *rows, const real_t *x,
                         const struct routing *r, int N) {
    struct cuda_state *s = cuda_state(be);
    const int32_t *ids = r->ids;
    const float *p = r->p;
    int n = N, A = m->s.A;
    assert(N <= m->s.capacity);
    if (m->n_ranks == 1) {
        be->sent_rows[0] += (uint64_t)N;
    } else {
        struct cuda_travel *t = s->travel;
        size_t list = (size_t)A * sizeof(int32_t);
        route_ranks(m->first, m->copy_of, m->place_of, t->copy_ids, t->copy_p, ids, p, s->scratch,
                    N, m->s.E, A, m->n_ranks, s->stream);
        count_copies(be, m);
        n = m->got_first[m->n_ranks];
        there(be, m, t->copy_ids, t->got_ids, list);
        there(be, m, t->copy_p, t->got_p, list);
        ids = t->got_ids, p = t->got_p;
        /* choices that are elsewhere get no row */
        cuda_check(cudaMemsetAsync(m->row_of, 0xff, (size_t)n * list, s->stream));
    }
    route_rows(m->offsets, m->ends, m->row_of, m->row_p, ids, p, s->scratch, n, m->n_local, A,
               be->row_unit, s->stream);
    spread(be, m, rows, x, N);
    if (!s->grouped)
        be->download(be, m->host_offsets, m->offsets,
                     ((size_t)m->n_local + 1) * sizeof *m->offsets);
}

static void moe_combine(struct backend *be, struct moe *m, real_t *out, const real_t *y, int N) {
    gather(be, m, out, y, N);
}

static void moe_combine_backward(struct backend *be, struct moe *m, real_t *dy, const real_t *dout,
                                 int N) {
    spread(be, m, dy, dout, N);
}

static void moe_dispatch_backward(struct backend *be, struct moe *m, real_t *dx, float *dp,
                                  const real_t *drows, const float *dp_rows, int N) {
    struct cuda_state *s = cuda_state(be);
    int A = m->s.A;
    gather(be, m, dx, drows, N);
    if (m->n_ranks == 1) {
        permute_gather_values(dp, dp_rows, m->row_of, N, A, s->stream);
        return;
    }
    struct cuda_travel *t = s->travel;
    permute_gather_values(t->got_p, dp_rows, m->row_of, m->got_first[m->n_ranks], A, s->stream);
    back(be, m, t->got_p, t->copy_p, (size_t)A * sizeof(float));
    permute_gather_values(dp, t->copy_p, m->place_of, N, A, s->stream);
}

void cuda_fill_exchange(struct backend *be) {
    be->moe_new = moe_new;
    be->moe_free = moe_free;
    be->moe_rows = moe_rows;
    be->moe_dispatch = moe_dispatch;
    be->moe_combine = moe_combine;
    be->moe_combine_backward = moe_combine_backward;
    be->moe_dispatch_backward = moe_dispatch_backward;
}
