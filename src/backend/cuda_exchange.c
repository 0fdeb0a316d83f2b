/* Between tokens and the rows of the experts, on one rank: nothing travels. Where the products of
 * the experts are asked for one by one, the host waits for the counts once a layer. */
#include "config.h"
#include "backend/cuda.h"
#include "base/memory.h"
#include "permute.h"
#include "route_rows.h"
#include <assert.h>

struct moe {
    struct moe_shape s;
    int n_local;
    int32_t *offsets, *ends; /* [n_local + 1], [n_local]: see route_rows.h */
    int32_t *row_of;         /* [N, A] row of each choice */
    float *row_p;            /* [R] */
    int32_t *host_offsets;   /* the same in pinned memory; NULL with the grouped kernels */
};

static size_t moe_rows(struct backend *be, struct moe_shape s) {
    return cuda_moe_rooms_of(s, be->row_unit).rows;
}

static struct moe *moe_new(struct backend *be, struct moe_shape s) {
    struct moe *m = memory_alloc(sizeof *m);
    struct cuda_moe_rooms rooms = cuda_moe_rooms_of(s, be->row_unit);
    const size_t *bytes = rooms.bytes;
    m->s = s, m->n_local = s.E / be->grid->ep_size;
    m->offsets = be->alloc(be, bytes[CUDA_MOE_OFFSETS]);
    m->ends = be->alloc(be, bytes[CUDA_MOE_ENDS]);
    m->row_of = be->alloc(be, bytes[CUDA_MOE_ROW_OF]);
    m->row_p = be->alloc(be, bytes[CUDA_MOE_ROW_P]);
    if (!cuda_state(be)->grouped)
        cuda_check(cudaMallocHost((void **)&m->host_offsets, bytes[CUDA_MOE_OFFSETS]));
    return m;
}

static void moe_free(struct backend *be, struct moe *m) {
    if (!m) return;
    be->release(be, m->offsets);
    be->release(be, m->row_of);
    be->release(be, m->ends);
    be->release(be, m->row_p);
    if (m->host_offsets) cuda_check(cudaFreeHost(m->host_offsets));
    memory_free(m);
}

struct cuda_rows cuda_moe_rows(const struct moe *m) {
    return (struct cuda_rows){.n_local = m->n_local,
                              .shape = m->s,
                              .offsets = m->offsets,
                              .row_p = m->row_p,
                              .host_offsets = m->host_offsets};
}

static void spread(struct backend *be, struct moe *m, real_t *rows, const real_t *x, int N) {
    struct cuda_state *s = cuda_state(be);
    permute_spread(s->real, rows, x, m->row_of, m->offsets, m->ends, N, m->n_local, m->s.A, m->s.D,
                   s->stream);
}

static void moe_dispatch(struct backend *be, struct moe *m, real_t *rows, const real_t *x,
                         const struct routing *r, int N) {
    struct cuda_state *s = cuda_state(be);
    assert(N <= m->s.capacity);
    route_rows(m->offsets, m->ends, m->row_of, m->row_p, r->ids, r->p, s->scratch, N, m->s.E,
               m->s.A, be->row_unit, s->stream);
    be->sent_rows[0] += (uint64_t)N;
    spread(be, m, rows, x, N);
    if (!s->grouped)
        be->download(be, m->host_offsets, m->offsets,
                     ((size_t)m->n_local + 1) * sizeof *m->offsets);
}

static void moe_combine(struct backend *be, struct moe *m, real_t *out, const real_t *y, int N) {
    struct cuda_state *s = cuda_state(be);
    permute_gather(s->real, out, y, m->row_of, N, m->s.A, m->s.D, s->stream);
}

static void moe_combine_backward(struct backend *be, struct moe *m, real_t *dy, const real_t *dout,
                                 int N) {
    spread(be, m, dy, dout, N);
}

static void moe_dispatch_backward(struct backend *be, struct moe *m, real_t *dx, float *dp,
                                  const real_t *drows, const float *dp_rows, int N) {
    struct cuda_state *s = cuda_state(be);
    permute_gather(s->real, dx, drows, m->row_of, N, m->s.A, m->s.D, s->stream);
    permute_gather_values(dp, dp_rows, m->row_of, N, m->s.A, s->stream);
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
