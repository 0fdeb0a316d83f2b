/* Each rank keeps of its micro-batch what belongs to new bases, close together, and sends it to
 * rank 0, which takes its own first and then those of the others in their order. */
#include "config.h"
#include "score/bases.h"
#include "base/memory.h"
#include "grid/watchdog.h"
#include <limits.h>
#include <string.h>

/* Experts of a base over all layers. */
static size_t width(const struct bases *b) {
    return (size_t)b->t->model->s.L * (size_t)b->t->model->s.A;
}

/* The documents of micro-batch `chunk` of stream i, and their losses, as stretches; skips[n]: the
 * token of the batch where each begins. */
static void list_stretches(struct bases *b, int i, int64_t chunk, const struct batch *batch,
                           int *skips) {
    b->n = b->n_bases = 0;
    for (int d = 0; d < batch->n_documents; d++) {
        int begin = batch->cu_seqlens[d], n = batch->cu_seqlens[d + 1] - begin;
        struct stream_fresh f = stream_fresh(b->streams[i], chunk * batch->capacity + begin, n);
        if (f.n == 0) continue;
        struct stretch s = {.stream = i, .segment = f.segment, .first = f.first, .n = f.n};
        for (int64_t k = f.skip > 0 ? f.skip - 1 : 0; k + 1 < f.skip + f.n; k++)
            if (batch->targets[begin + k] >= 0) s.n_targets++, s.loss += b->host[begin + k];
        skips[b->n] = begin + (int)f.skip;
        b->stretches[b->n++] = s;
        b->n_bases += (int)f.n;
    }
}

/* A experts of one token by weight; ids ascend, so that equal weights stay in their order. */
static void sort_experts(const int32_t *ids, const float *p, int A, uint16_t *experts,
                         float *weights) {
    for (int a = 0; a < A; a++) {
        int k = a;
        for (; k > 0 && weights[k - 1] < p[a]; k--)
            experts[k] = experts[k - 1], weights[k] = weights[k - 1];
        experts[k] = (uint16_t)ids[a], weights[k] = p[a];
    }
}

static void list_experts(struct bases *b, const int *skips) {
    struct model *m = b->t->model;
    size_t A = (size_t)m->s.A, n = (size_t)m->N * A;
    for (int l = 0; l < m->s.L; l++) {
        const struct routing *r = &m->layers[l].routing;
        m->be->download(m->be, b->ids, r->ids, n * sizeof *b->ids);
        m->be->download(m->be, b->p, r->p, n * sizeof *b->p);
        size_t to = (size_t)l * A;
        for (int k = 0; k < b->n; k++)
            for (int64_t i = 0; i < b->stretches[k].n; i++, to += width(b)) {
                size_t from = ((size_t)skips[k] + (size_t)i) * A;
                sort_experts(b->ids + from, b->p + from, m->s.A, b->experts + to, b->weights + to);
            }
    }
}

static void hand_on(const struct bases *b) {
    const uint16_t *experts = b->experts;
    const float *weights = b->weights;
    for (int k = 0; k < b->n; k++) {
        b->take(b->context, &b->stretches[k], experts, weights);
        if (!experts) continue;
        experts += (size_t)b->stretches[k].n * width(b);
        weights += (size_t)b->stretches[k].n * width(b);
    }
}

static void send(const struct bases *b) {
    MPI_Comm world = b->t->grid.world;
    int n = (int)((size_t)b->n_bases * width(b));
    MPI_Send(b->stretches, b->n * (int)sizeof *b->stretches, MPI_BYTE, 0, 0, world);
    if (!b->experts) return;
    MPI_Send(b->experts, n, MPI_UINT16_T, 0, 1, world);
    MPI_Send(b->weights, n, MPI_FLOAT, 0, 2, world);
}

static void receive(struct bases *b, int rank) {
    MPI_Comm world = b->t->grid.world;
    int capacity = b->t->model->capacity, bytes,
        room = b->experts ? (int)((size_t)capacity * width(b)) : 0;
    MPI_Status status;
    MPI_Recv(b->stretches, capacity * (int)sizeof *b->stretches, MPI_BYTE, rank, 0, world, &status);
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    b->n = bytes / (int)sizeof *b->stretches;
    if (!b->experts) return;
    MPI_Recv(b->experts, room, MPI_UINT16_T, rank, 1, world, MPI_STATUS_IGNORE);
    MPI_Recv(b->weights, room, MPI_FLOAT, rank, 2, world, MPI_STATUS_IGNORE);
}

static void take_round(void *context, int i, int64_t first, int64_t n, const struct batch *batch) {
    struct bases *b = context;
    struct model *m = b->t->model;
    const struct grid *g = &b->t->grid;
    watchdog_phase(WATCHDOG_RECORD, -1);
    if (first + g->rank < n) {
        int *skips = memory_alloc_array((size_t)batch->n_documents + 1, sizeof *skips);
        m->be->download(m->be, b->host, b->each.losses, (size_t)batch->n * sizeof *b->host);
        list_stretches(b, i, first + g->rank, batch, skips);
        if (b->experts) list_experts(b, skips);
        memory_free(skips);
        if (g->rank > 0) send(b);
    }
    for (int k = 0; g->rank == 0 && k < g->n_ranks && first + k < n; k++) {
        if (k > 0) receive(b, k);
        hand_on(b);
        watchdog_progress();
    }
}

char *bases_refusal(const struct config *c, int capacity) {
    struct shape s = shape_of(c);
    size_t most = (size_t)s.L * (size_t)s.A;
    if (most < sizeof(struct stretch)) most = sizeof(struct stretch);
    if ((size_t)capacity <= INT_MAX / most) return NULL; /* MPI counts in int */
    return memory_format("dataset.token_micro_batch_size: micro-batches of %d tokens are too large "
                         "to be told base by base",
                         capacity);
}

void bases_open(struct bases *b, struct trained *t, struct stream *const *streams, int routing,
                bases_take *take, void *context) {
    struct model *m = t->model;
    size_t capacity = (size_t)m->capacity, A = (size_t)m->s.A;
    *b = (struct bases){.t = t, .streams = streams, .take = take, .context = context};
    b->each = (struct evaluate_each){
        .losses = m->be->alloc(m->be, capacity * sizeof(double)), .take = take_round, .context = b};
    b->host = memory_alloc_array(capacity, sizeof *b->host);
    b->stretches = memory_alloc_array(capacity, sizeof *b->stretches);
    if (!routing) return;
    b->experts = memory_alloc_array(capacity * width(b), sizeof *b->experts);
    b->weights = memory_alloc_array(capacity * width(b), sizeof *b->weights);
    b->ids = memory_alloc_array(capacity * A, sizeof *b->ids);
    b->p = memory_alloc_array(capacity * A, sizeof *b->p);
}

void bases_close(struct bases *b) {
    b->t->be->release(b->t->be, b->each.losses);
    memory_free(b->host);
    memory_free(b->stretches);
    memory_free(b->experts);
    memory_free(b->weights);
    memory_free(b->ids);
    memory_free(b->p);
}
