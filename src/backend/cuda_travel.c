/* The exchange of tokens through NCCL. A token travels once to every rank that holds one of its
 * experts, with the list of those experts and their probabilities, and is laid out there once for
 * each of them; results go the same way back, summed by expert on the rank that computed them, then
 * by rank on the rank that owns the token. The host waits for the number of copies once a layer. */
#include "config.h"
#include "backend/cuda_exchange.h"
#include "base/memory.h"
#include "grid/watchdog.h"
#include "low_rows.h"
#include "permute.h"
#include "route_ranks.h"
#include "route_rows.h"

/* Room for what travels, of one layer at a time. */
struct cuda_travel {
    real_t *copies, *arrivals;   /* [copies, D], [arrivals, D], also for rows in eight bits */
    int32_t *copy_ids, *got_ids; /* [copies, A], [arrivals, A] */
    float *copy_p, *got_p;       /* the same */
};

void cuda_travel_reserve(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_travel_rooms rooms =
        cuda_travel_rooms_of(&s->work, be->real_bytes, be->grid->ep_size);
    struct cuda_travel *t = s->travel = memory_alloc(sizeof *t);
    t->copies = be->alloc(be, rooms.copies), t->arrivals = be->alloc(be, rooms.arrivals);
    t->copy_ids = be->alloc(be, rooms.copy_lists), t->got_ids = be->alloc(be, rooms.got_lists);
    t->copy_p = be->alloc(be, rooms.copy_lists), t->got_p = be->alloc(be, rooms.got_lists);
}

void cuda_travel_close(struct backend *be) {
    struct cuda_travel *t = cuda_state(be)->travel;
    if (!t) return;
    void *const all[] = {t->copies, t->arrivals, t->copy_ids, t->got_ids, t->copy_p, t->got_p};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) be->release(be, all[i]);
    memory_free(t);
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

/* Into rows that begin at base[0]; NULL: at 0. */
static void spread_at(struct backend *be, struct moe *m, real_t *rows, const int32_t *base,
                      const real_t *x, int N) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_travel *t = s->travel;
    if (be->low_rows) {
        low_rows_pack(s->real, t->copies, x, m->copy_of, N, m->s.A, m->s.D, s->stream);
        there(be, m, t->copies, t->arrivals, low_row_bytes(m->s.D));
        low_rows_spread(s->real, rows, base, t->arrivals, m->row_of, m->offsets, m->ends,
                        m->got_first[m->n_ranks], m->n_local, m->s.A, m->s.D, s->stream);
        return;
    }
    permute_spread(s->real, t->copies, /*base=*/NULL, x, m->copy_of, NULL, NULL, N, 0, m->s.A,
                   m->s.D, s->stream);
    there(be, m, t->copies, t->arrivals, (size_t)m->s.D * be->real_bytes);
    permute_spread(s->real, rows, base, t->arrivals, m->row_of, m->offsets, m->ends,
                   m->got_first[m->n_ranks], m->n_local, m->s.A, m->s.D, s->stream);
}

static void spread(struct backend *be, struct moe *m, real_t *rows, const real_t *x, int N) {
    spread_at(be, m, rows, /*base=*/NULL, x, N);
}

static void gather(struct backend *be, struct moe *m, real_t *out, const real_t *rows, int N) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_travel *t = s->travel;
    permute_gather(s->real, t->arrivals, rows, m->row_of, m->got_first[m->n_ranks], m->s.A, m->s.D,
                   s->stream);
    back(be, m, t->arrivals, t->copies, (size_t)m->s.D * be->real_bytes);
    permute_gather(s->real, out, t->copies, m->copy_of, N, m->s.A, m->s.D, s->stream);
}

static void gather_p(struct backend *be, struct moe *m, float *dp, const float *dp_rows, int N) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_travel *t = s->travel;
    int A = m->s.A;
    permute_gather_values(t->got_p, dp_rows, m->row_of, m->got_first[m->n_ranks], A, s->stream);
    back(be, m, t->got_p, t->copy_p, (size_t)A * sizeof(float));
    permute_gather_values(dp, t->copy_p, m->place_of, N, A, s->stream);
}

static void dispatch(struct backend *be, struct moe *m, real_t *rows, const real_t *x,
                     const struct routing *r, int N) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_travel *t = s->travel;
    int A = m->s.A, n;
    size_t list = (size_t)A * sizeof(int32_t);
    route_ranks(m->first, m->copy_of, m->place_of, t->copy_ids, t->copy_p, r->ids, r->p, s->scratch,
                N, m->s.E, A, m->n_ranks, s->stream);
    count_copies(be, m);
    n = m->got_first[m->n_ranks];
    there(be, m, t->copy_ids, t->got_ids, list);
    there(be, m, t->copy_p, t->got_p, list);
    /* choices that are elsewhere get no row */
    cuda_check(cudaMemsetAsync(m->row_of, 0xff, (size_t)n * list, s->stream));
    route_rows(m->offsets, m->ends, m->row_of, m->row_p, t->got_ids, t->got_p, s->scratch, n,
               m->n_local, A, be->row_unit, s->stream);
    if (m->stash.base) stash_place_own(cuda_stash_place(be, m), m->offsets, m->n_local, s->stream);
    spread_at(be, m, rows, cuda_stash_base(be, m), x, N);
}

const struct cuda_ways cuda_travel_ways = {
    .dispatch = dispatch, .spread = spread, .gather = gather, .gather_p = gather_p};
