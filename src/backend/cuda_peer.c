/* The exchange of tokens over memory that the GPUs of one host reach directly (CUDA IPC). Tokens go
 * straight to their rows on the ranks of their experts; how many there are, the ranks tell each
 * other on the device, and there they wait for each other: the host knows nothing of it, and the
 * whole can be recorded.
 *
 * When others may write to a rank's rows, or it may read theirs, is settled by meetings. Before
 * rows are pushed: nobody works on the old ones any more (in dispatch the meeting at which counts
 * are told). After that: all are there. Before results are pulled: they are there. What is pulled
 * from stays as it is until the next meeting of its owner. */
#include "config.h"
#include "backend/cuda_exchange.h"
#include "backend/cuda_window.h"
#include "base/memory.h"
#include "peer_move.h"
#include "peer_rows.h"
#include <assert.h>
#include <string.h>

enum { BLOCKS = 128 /* where the options say nothing */ };

struct cuda_peer {
    struct peers boards;
    unsigned long long *sent; /* [ep_size] */
    struct peer_order order;  /* of one layer at a time */
    int blocks;
};

/* The same array on every rank. */
static struct peers at_all(struct backend *be, const void *own) {
    const struct peers *at = cuda_window_of(be, own);
    assert(at && at->at[at->me] == own);
    return *at;
}

/* Every rank writes a number to all others' boards. Collective over ep. */
static char *try_boards(struct backend *be, const struct peers *boards) {
    const int n = boards->n, me = boards->me;
    char *problem = NULL;
    for (int r = 0; r < n; r++) {
        struct peer_board *there = boards->at[r];
        int32_t word = 1 + me;
        cuda_check(cudaMemcpy(&there->counts[me][0], &word, sizeof word, cudaMemcpyHostToDevice));
    }
    cuda_check(cudaDeviceSynchronize());
    MPI_Barrier(be->grid->ep);
    for (int r = 0; r < n && !problem; r++) {
        struct peer_board *mine = boards->at[me];
        int32_t word = 0;
        cuda_check(cudaMemcpy(&word, &mine->counts[r][0], sizeof word, cudaMemcpyDeviceToHost));
        if (word != 1 + r) problem = memory_format("what rank %d of ep wrote did not arrive", r);
    }
    MPI_Barrier(be->grid->ep);
    return problem;
}

/* Why this rank's group cannot; the boards are open, or as far as that went. */
static char *try_peers(struct backend *be, struct cuda_peer *p) {
    MPI_Comm ep = be->grid->ep;
    char *problem = cuda_board_open(be, ep, sizeof(struct peer_board), &p->boards);
    int fails = problem != NULL;
    MPI_Allreduce(MPI_IN_PLACE, &fails, 1, MPI_INT, MPI_MAX, ep);
    return fails ? problem : try_boards(be, &p->boards);
}

char *cuda_peer_open(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_peer *p = s->peer = memory_alloc(sizeof *p);
    p->blocks = s->options.exchange_blocks > 0 ? s->options.exchange_blocks : BLOCKS;
    char *problem = agree_problem(be->grid, try_peers(be, p));
    if (problem) cuda_peer_close(be);
    return problem;
}

void cuda_peer_reserve(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_peer *p = s->peer;
    struct cuda_order_rooms rooms = cuda_order_rooms_of(&s->work, be->grid->ep_size);
    p->sent = cuda_state_alloc(be, rooms.sent);
    p->order.begins = be->alloc(be, rooms.begins), p->order.shift = be->alloc(be, rooms.shift);
    p->order.place_of = be->alloc(be, rooms.choices);
    p->order.choice_at = be->alloc(be, rooms.choices);
}

void cuda_peer_close(struct backend *be) {
    struct cuda_peer *p = cuda_state(be)->peer;
    if (!p) return;
    void *const all[] = {p->sent, p->order.begins, p->order.shift, p->order.place_of,
                         p->order.choice_at};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]) cuda_check(cudaFree(all[i]));
    cuda_board_close(be->grid->ep, &p->boards);
    memory_free(p);
    cuda_state(be)->peer = NULL;
}

void cuda_peer_sent(struct backend *be, uint64_t *rows) {
    struct cuda_peer *p = cuda_state(be)->peer;
    size_t n = (size_t)be->grid->ep_size;
    unsigned long long *sent = memory_alloc_array(n, sizeof *sent);
    be->download(be, sent, p->sent, n * sizeof *sent);
    be->zero(be, p->sent, n * sizeof *sent);
    for (size_t r = 0; r < n; r++) rows[r] += sent[r];
    memory_free(sent);
}

static const int32_t *chain_of(const struct moe *m) {
    return (const int32_t *)(m->row_p + m->rows);
}

/* After a meeting before which nobody works on the rows any more. bases: of the rows on each rank;
 * NULL: 0. */
static void push(struct backend *be, struct moe *m, real_t *rows, const int32_t *bases,
                 const real_t *x, int N) {
    struct cuda_state *s = cuda_state(be);
    const struct peers at = at_all(be, rows);
    const int32_t *base = bases ? bases + be->grid->ep_rank : NULL;
    if (be->low_rows)
        peer_push_low(s->real, at, bases, x, m->row_of, m->ids, N, m->s.E, m->s.A, m->s.D,
                      s->peer->blocks, s->stream);
    else
        peer_push(s->real, at, bases, x, m->row_of, m->ids, N, m->s.E, m->s.A, m->s.D,
                  s->peer->blocks, s->stream);
    peers_meet(s->peer->boards, s->stream);
    if (be->low_rows)
        peer_repeat_low(s->real, rows, base, chain_of(m), m->offsets, m->ends, m->n_local, m->s.D,
                        s->stream);
    else
        peer_repeat(s->real, rows, base, chain_of(m), m->offsets, m->ends, m->n_local, m->s.D,
                    s->stream);
}

static void dispatch(struct backend *be, struct moe *m, real_t *rows, const real_t *x,
                     const struct routing *r, int N) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_peer *p = s->peer;
    struct peer_marks marks = {.at = at_all(be, m->row_p), .rows = m->rows};
    cuda_exchange_begins(be);
    m->ids = r->ids;
    peer_rows(m->offsets, m->ends, m->row_of, p->sent, cuda_stash_place(be, m), marks, p->order,
              p->boards, r->ids, r->p, s->scratch, N, m->s.E, m->s.A, be->row_unit, s->stream);
    push(be, m, rows, cuda_stash_bases(m), x, N);
    cuda_exchange_ends(be);
}

static void spread(struct backend *be, struct moe *m, real_t *rows, const real_t *x, int N) {
    cuda_exchange_begins(be);
    peers_meet(cuda_state(be)->peer->boards, cuda_state(be)->stream);
    push(be, m, rows, /*bases=*/NULL, x, N);
    cuda_exchange_ends(be);
}

static void gather(struct backend *be, struct moe *m, real_t *out, const real_t *rows, int N) {
    struct cuda_state *s = cuda_state(be);
    cuda_exchange_begins(be);
    peer_sum(s->real, (real_t *)(uintptr_t)rows, chain_of(m), m->offsets, m->n_local, m->s.D,
             s->stream);
    peers_meet(s->peer->boards, s->stream);
    peer_pull(s->real, out, at_all(be, rows), m->row_of, m->ids, N, m->s.E, m->s.A, m->s.D,
              s->peer->blocks, s->stream);
    cuda_exchange_ends(be);
}

/* The meeting of the rows' gather is that of their probabilities', too: those were there before it.
 */
static void gather_p(struct backend *be, struct moe *m, float *dp, const float *dp_rows, int N) {
    peer_pull_values(dp, at_all(be, dp_rows), m->row_of, m->ids, N, m->s.E, m->s.A,
                     cuda_state(be)->stream);
}

const struct cuda_ways cuda_peer_ways = {
    .dispatch = dispatch, .spread = spread, .gather = gather, .gather_p = gather_p};
