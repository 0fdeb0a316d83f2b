/* Expert parallelism over MPI. A token travels once to every rank that holds one of its experts,
 * with the list of those experts and their probabilities; there it is laid out once for each of
 * them. Results go the same way back, summed by expert on the rank that computed them, then by rank
 * on the rank that owns the token. With ep_size 1 nothing travels and the tokens are read where
 * they lie. */
#include "config.h"
#include "backend/cpu.h"
#include "base/die.h"
#include "base/memory.h"
#include "grid/watchdog.h"
#include "low_row.h"
#include <assert.h>
#include <math.h>
#include <string.h>

struct moe {
    struct moe_shape s;
    int n_ranks, n_local;
    /* what this rank sends: copies of its tokens, by destination rank, then token */
    int *sent;       /* [n_ranks] copies to each rank */
    int *sent_first; /* [n_ranks + 1] where they begin */
    int *copy_token; /* [copies] */
    int32_t
        *copy_ids; /* [copies, A] local expert of each choice on the destination; -1: elsewhere */
    float *copy_p; /* [copies, A] */
    /* what it gets: by source rank, then token */
    int *got, *got_first; /* [n_ranks], [n_ranks + 1] */
    int32_t *got_ids;     /* [arrivals, A] */
    float *got_p;         /* [arrivals, A] */
    int *row_of;          /* [arrivals, A] row of each choice; -1: elsewhere */
    /* the rows of the local experts */
    int unit;       /* an expert's begin at multiples of it */
    int *offsets;   /* [n_local + 1] */
    int *row_token; /* [R] arrival; -1: the row pads */
    float *row_p;   /* [R] */
    /* their place; without a stash all 0 */
    struct stash stash;
    size_t base, end, z_base, z_end;
};

static size_t smaller(int a, int b) {
    return (size_t)(a < b ? a : b);
}

static size_t most_arrivals(struct backend *be, struct moe_shape s) {
    return (size_t)be->grid->ep_size * (size_t)s.capacity;
}

static size_t moe_rows(struct backend *be, struct moe_shape s) {
    int n_local = s.E / be->grid->ep_size;
    return most_arrivals(be, s) * smaller(s.A, n_local) +
           (size_t)n_local * (size_t)(be->row_unit - 1);
}

static struct moe *moe_new(struct backend *be, struct moe_shape s) {
    struct moe *m = memory_alloc(sizeof *m);
    int P = be->grid->ep_size;
    size_t A = (size_t)s.A, copies = (size_t)s.capacity * smaller(s.A, P),
           arrivals = most_arrivals(be, s);
    m->s = s, m->n_ranks = P, m->n_local = s.E / P, m->unit = be->row_unit;
    m->sent = memory_alloc_array((size_t)P, sizeof *m->sent);
    m->got = memory_alloc_array((size_t)P, sizeof *m->got);
    m->sent_first = memory_alloc_array((size_t)P + 1, sizeof *m->sent_first);
    m->got_first = memory_alloc_array((size_t)P + 1, sizeof *m->got_first);
    m->offsets = memory_alloc_array((size_t)m->n_local + 1, sizeof *m->offsets);
    m->copy_token = be->alloc(be, copies * sizeof *m->copy_token);
    m->copy_ids = be->alloc(be, copies * A * sizeof *m->copy_ids);
    m->copy_p = be->alloc(be, copies * A * sizeof *m->copy_p);
    m->got_ids = P == 1 ? m->copy_ids : be->alloc(be, arrivals * A * sizeof *m->got_ids);
    m->got_p = P == 1 ? m->copy_p : be->alloc(be, arrivals * A * sizeof *m->got_p);
    m->row_of = be->alloc(be, arrivals * A * sizeof *m->row_of);
    m->row_token = be->alloc(be, moe_rows(be, s) * sizeof *m->row_token);
    m->row_p = be->alloc(be, moe_rows(be, s) * sizeof *m->row_p);
    return m;
}

static void moe_free(struct backend *be, struct moe *m) {
    if (!m) return;
    if (m->n_ranks > 1) be->release(be, m->got_ids), be->release(be, m->got_p);
    be->release(be, m->copy_token);
    be->release(be, m->copy_ids);
    be->release(be, m->copy_p);
    be->release(be, m->row_of);
    be->release(be, m->row_token);
    be->release(be, m->row_p);
    memory_free(m->sent);
    memory_free(m->got);
    memory_free(m->sent_first);
    memory_free(m->got_first);
    memory_free(m->offsets);
    memory_free(m);
}

static void moe_stash(struct backend *be, struct moe *m, struct stash s) {
    (void)be;
    m->stash = s;
}

/* *base: where n rows begin that follow `first`, in an array of `room`. Returns 0 where they do not
 * fit. */
static int place(size_t *base, size_t *end, size_t first, size_t n, size_t room, int again) {
    int fits = first + n <= room;
    *end = first + n;
    *base = fits && !again ? first : 0;
    return fits;
}

static void place_rows(struct moe *m, int again) {
    const struct stash *s = &m->stash;
    const struct moe *before = s->before;
    size_t n = (size_t)m->offsets[m->n_local];
    if (!s->rows) return;
    int fits = place(&m->base, &m->end, before ? before->end : 0, n, s->rows, again);
    fits &= place(&m->z_base, &m->z_end, before ? before->z_end : 0, s->z ? n : 0, s->z, again);
    if (!fits && !again) *s->overflow = INFINITY;
    s->need[0] = fmax(s->need[0], (double)m->end);
    s->need[1] = fmax(s->need[1], (double)m->z_end);
}

struct moe_rows cpu_moe_rows(const struct moe *m) {
    return (struct moe_rows){.n_local = m->n_local,
                             .base = m->base,
                             .z_base = m->z_base,
                             .shape = m->s,
                             .offsets = m->offsets,
                             .row_p = m->row_p};
}

/* Alltoallv of rows of `width` 4-byte elements; forward: copies out, arrivals in; back: the other
 * way. */
enum direction { FORWARD, BACK };
static void exchange(struct backend *be, struct moe *m, enum direction d, const void *from,
                     void *to, int width) {
    enum clock before = be->clock(be, CLOCK_EXCHANGE);
    MPI_Datatype row;
    watchdog_exchange(1);
    MPI_Type_contiguous(width, MPI_FLOAT, &row);
    MPI_Type_commit(&row);
    if (d == FORWARD)
        MPI_Alltoallv(from, m->sent, m->sent_first, row, to, m->got, m->got_first, row,
                      be->grid->ep);
    else
        MPI_Alltoallv(from, m->got, m->got_first, row, to, m->sent, m->sent_first, row,
                      be->grid->ep);
    MPI_Type_free(&row);
    watchdog_exchange(0);
    be->clock(be, before);
}

/* Lists the copies: for each rank, the tokens with an expert there. */
static void list_copies(struct backend *be, struct moe *m, const struct routing *r, int N) {
    int A = m->s.A, n = 0;
    for (int rank = 0; rank < m->n_ranks; rank++) {
        m->sent_first[rank] = n;
        for (int i = 0; i < N; i++) {
            const int32_t *ids = r->ids + (size_t)i * (size_t)A;
            int any = 0;
            for (int a = 0; a < A; a++) any |= ids[a] / m->n_local == rank;
            if (!any) continue;
            for (int a = 0; a < A; a++) {
                size_t at = (size_t)n * (size_t)A + (size_t)a;
                m->copy_ids[at] = ids[a] / m->n_local == rank ? ids[a] % m->n_local : -1;
                m->copy_p[at] = r->p[(size_t)i * (size_t)A + (size_t)a];
            }
            m->copy_token[n++] = i;
        }
        m->sent[rank] = n - m->sent_first[rank];
        be->sent_rows[rank] += (uint64_t)m->sent[rank];
    }
    m->sent_first[m->n_ranks] = n;
}

static void exchange_lists(struct backend *be, struct moe *m) {
    enum clock before = be->clock(be, CLOCK_EXCHANGE);
    watchdog_exchange(1);
    MPI_Alltoall(m->sent, 1, MPI_INT, m->got, 1, MPI_INT, be->grid->ep);
    watchdog_exchange(0);
    be->clock(be, before);
    m->got_first[0] = 0;
    for (int r = 0; r < m->n_ranks; r++) m->got_first[r + 1] = m->got_first[r] + m->got[r];
    if (m->n_ranks == 1) return;
    exchange(be, m, FORWARD, m->copy_ids, m->got_ids, m->s.A);
    exchange(be, m, FORWARD, m->copy_p, m->got_p, m->s.A);
}

/* Gives every (arrival, local expert) pair its row: by expert, then by arrival. */
static void lay_out_rows(struct moe *m) {
    int A = m->s.A, n = m->got_first[m->n_ranks];
    int *offsets = m->offsets;
    memset(offsets, 0, ((size_t)m->n_local + 1) * sizeof *offsets);
    for (size_t k = 0; k < (size_t)n * (size_t)A; k++)
        if (m->got_ids[k] >= 0) offsets[m->got_ids[k] + 1]++;
    for (int e = 0; e < m->n_local; e++)
        offsets[e + 1] = offsets[e] + (offsets[e + 1] + m->unit - 1) / m->unit * m->unit;
    for (int r = 0; r < offsets[m->n_local]; r++) m->row_token[r] = -1, m->row_p[r] = 0;
    for (int i = 0; i < n; i++)
        for (int a = 0; a < A; a++) {
            size_t k = (size_t)i * (size_t)A + (size_t)a;
            int e = m->got_ids[k];
            m->row_of[k] = e < 0 ? -1 : offsets[e]++;
            if (e < 0) continue;
            m->row_token[m->row_of[k]] = i;
            m->row_p[m->row_of[k]] = m->got_p[k];
        }
    for (int e = m->n_local; e > 0; e--) /* they had moved on by their expert's rows */
        offsets[e] = (offsets[e - 1] + m->unit - 1) / m->unit * m->unit;
    offsets[0] = 0;
}

/* Floats that a token takes on its way. */
static size_t width_of(const struct backend *be, const struct moe *m) {
    return be->low_rows ? low_row_bytes(m->s.D) / sizeof(float) : (size_t)m->s.D;
}

/* x[N, D] to the arrivals' order, on the ranks where they are needed, as they travel. Borrowed
 * until the next exchange. */
static const float *send_tokens(struct backend *be, struct moe *m, const float *x) {
    if (m->n_ranks == 1) return x;
    size_t D = (size_t)m->s.D, width = width_of(be, m), n = (size_t)m->sent_first[m->n_ranks],
           arrivals = (size_t)m->got_first[m->n_ranks];
    float *out = cpu_exchange_buffer(be, SEND_BUFFER, n * width),
          *in = cpu_exchange_buffer(be, RECEIVE_BUFFER, arrivals * width);
#pragma omp parallel for if (be->low_rows && cpu_worth(n, D))
    for (size_t c = 0; c < n; c++) {
        const float *token = x + (size_t)m->copy_token[c] * D;
        if (be->low_rows)
            cpu_low_row_write(out + c * width, token, m->s.D);
        else
            memcpy(out + c * width, token, D * sizeof *x);
    }
    exchange(be, m, FORWARD, out, in, (int)width);
    return in;
}

/* A row from where send_tokens left its token: on one rank that is where it lies. */
static void lay_out_row(const struct backend *be, const struct moe *m, float *row,
                        const float *arrivals, size_t token) {
    size_t D = (size_t)m->s.D;
    if (!be->low_rows)
        memcpy(row, arrivals + token * D, D * sizeof *row);
    else if (m->n_ranks == 1)
        cpu_low_row_round(row, arrivals + token * D, m->s.D);
    else
        cpu_low_row_read(row, arrivals + token * width_of(be, m), m->s.D);
}

static void spread_rows(struct backend *be, struct moe *m, float *rows, const float *arrivals) {
    size_t D = (size_t)m->s.D;
    int R = m->offsets[m->n_local];
#pragma omp parallel for if (cpu_worth((size_t)R, D))
    for (int r = 0; r < R; r++) {
        if (m->row_token[r] < 0)
            memset(rows + (size_t)r * D, 0, D * sizeof *rows);
        else
            lay_out_row(be, m, rows + (size_t)r * D, arrivals, (size_t)m->row_token[r]);
    }
}

/* out[N, D] = sum over a token's rows, by expert within a rank, then by rank. */
static void gather_rows(struct backend *be, struct moe *m, float *out, const float *rows, int N) {
    size_t D = (size_t)m->s.D, A = (size_t)m->s.A, n = (size_t)m->sent_first[m->n_ranks];
    int arrivals = m->got_first[m->n_ranks], alone = m->n_ranks == 1;
    float *sums = alone ? out : cpu_exchange_buffer(be, SEND_BUFFER, (size_t)arrivals * D);
#pragma omp parallel for if (cpu_worth((size_t)arrivals, A * D))
    for (int i = 0; i < arrivals; i++) {
        float *sum = sums + (size_t)i * D;
        int first = 1;
        for (size_t a = 0; a < A; a++) {
            int r = m->row_of[(size_t)i * A + a];
            if (r < 0) continue;
            const float *row = rows + (size_t)r * D;
            if (first)
                memcpy(sum, row, D * sizeof *sum);
            else
                for (size_t j = 0; j < D; j++) sum[j] += row[j];
            first = 0;
        }
    }
    if (alone) return;
    float *back = cpu_exchange_buffer(be, RECEIVE_BUFFER, n * D);
    exchange(be, m, BACK, sums, back, m->s.D);
    if (N) memset(out, 0, (size_t)N * D * sizeof *out);
    for (size_t c = 0; c < n; c++) {
        float *sum = out + (size_t)m->copy_token[c] * D;
        for (size_t j = 0; j < D; j++) sum[j] += back[c * D + j];
    }
}

static void moe_dispatch(struct backend *be, struct moe *m, real_t *rows, const real_t *x,
                         const struct routing *r, int N) {
    assert(N <= m->s.capacity);
    list_copies(be, m, r, N);
    exchange_lists(be, m);
    lay_out_rows(m);
    place_rows(m, be->rows_again);
    spread_rows(be, m, (float *)rows + m->base * (size_t)m->s.D, send_tokens(be, m, x));
}

static void moe_combine(struct backend *be, struct moe *m, real_t *out, const real_t *y, int N) {
    gather_rows(be, m, out, y, N);
}

static void moe_combine_backward(struct backend *be, struct moe *m, real_t *dy, const real_t *dout,
                                 int N) {
    (void)N;
    spread_rows(be, m, dy, send_tokens(be, m, dout));
}

static void moe_dispatch_backward(struct backend *be, struct moe *m, real_t *dx, float *dp,
                                  const real_t *drows, const float *dp_rows, int N) {
    size_t A = (size_t)m->s.A, n = (size_t)m->sent_first[m->n_ranks],
           arrivals = (size_t)m->got_first[m->n_ranks];
    gather_rows(be, m, dx, drows, N);
    /* got_p and copy_p have served: they carry the gradients back in place of the probabilities */
    for (size_t k = 0; k < arrivals * A; k++)
        m->got_p[k] = m->row_of[k] < 0 ? 0 : dp_rows[m->row_of[k]];
    if (m->n_ranks > 1) exchange(be, m, BACK, m->got_p, m->copy_p, m->s.A);
    for (size_t c = 0; c < n; c++)
        for (size_t a = 0; a < A; a++)
            if (m->copy_ids[c * A + a] >= 0)
                dp[(size_t)m->copy_token[c] * A + a] = m->copy_p[c * A + a];
}

static const uint64_t *sent(struct backend *be) {
    return be->sent_rows;
}

void cpu_fill_exchange(struct backend *be) {
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
