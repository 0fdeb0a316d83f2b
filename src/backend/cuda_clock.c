/* Time by events on the main stream: what was enqueued while the clock stood on a kind counts as
 * it, gaps included. Exchanges that may be recorded in graphs, where events cannot tell, have spans
 * instead: the device's own clock, taken off the kind that the work lies in. */
#include "config.h"
#include "backend/cuda.h"
#include "base/memory.h"
#include "span.h"
#include <cuda_profiler_api.h>
#include <string.h>

enum { MARKS = 16384 };

struct cuda_clock {
    cudaEvent_t events[MARKS];
    enum clock kinds[MARKS]; /* from event i on */
    int n;
    double seconds[N_CLOCKS];          /* of marks that were taken up already */
    unsigned long long *begins, *sums; /* [N_CLOCKS, 2] and [N_CLOCKS] of spans, see span.h */
    unsigned long long seen[N_CLOCKS]; /* of the sums */
};

/* Takes up the marks there are, waiting for their events; the last one stays as the first. */
static void take_up(struct cuda_state *s) {
    struct cuda_clock *c = s->clock;
    enum clock now = c->kinds[c->n - 1];
    for (int i = 0; i + 1 < c->n; i++) {
        float ms;
        cuda_check(cudaEventSynchronize(c->events[i + 1]));
        cuda_check(cudaEventElapsedTime(&ms, c->events[i], c->events[i + 1]));
        c->seconds[c->kinds[i]] += (double)ms / 1e3;
    }
    cuda_check(cudaEventRecord(c->events[0], s->stream));
    c->kinds[0] = now, c->n = 1;
}

static enum clock turn(struct backend *be, enum clock what) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_clock *c = s->clock;
    enum clock before = c->kinds[c->n - 1];
    if (what == before) return before;
    cuda_check(cudaEventRecord(c->events[c->n], s->stream));
    c->kinds[c->n++] = what;
    if (c->n == MARKS) { /* after some thousand turns without a reading: the host waits */
        take_up(s);
        be->waits++;
    }
    return before;
}

static struct span span_of(const struct cuda_clock *c) {
    enum clock now = c->kinds[c->n - 1];
    return (struct span){.begin = c->begins + 2 * now, .sum = c->sums + now};
}

void cuda_exchange_begins(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    span_begin(span_of(s->clock), s->stream);
}

void cuda_exchange_ends(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    span_end(span_of(s->clock), s->stream);
}

static void read_clock(struct backend *be, double seconds[N_CLOCKS]) {
    struct cuda_clock *c = cuda_state(be)->clock;
    take_up(cuda_state(be));
    memcpy(seconds, c->seconds, sizeof c->seconds);
    memset(c->seconds, 0, sizeof c->seconds);
    for (int k = 0; k < N_CLOCKS; k++) {
        double span = (double)(c->sums[k] - c->seen[k]) / 1e9;
        seconds[k] -= span, seconds[CLOCK_EXCHANGE] += span;
        c->seen[k] = c->sums[k];
    }
}

static void profile(struct backend *be, int on) {
    cuda_wait(be);
    cuda_check(on ? cudaProfilerStart() : cudaProfilerStop());
}

void cuda_fill_clock(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    s->clock = memory_alloc(sizeof *s->clock);
    for (int i = 0; i < MARKS; i++) cuda_check(cudaEventCreate(&s->clock->events[i]));
    size_t sums = N_CLOCKS * sizeof *s->clock->sums;
    cuda_check(cudaMalloc((void **)&s->clock->begins, 2 * sums));
    cuda_check(cudaMemsetAsync(s->clock->begins, 0, 2 * sums, s->stream));
    cuda_check(cudaHostAlloc((void **)&s->clock->sums, sums, cudaHostAllocMapped));
    memset(s->clock->sums, 0, sums);
    cuda_check(cudaEventRecord(s->clock->events[0], s->stream));
    s->clock->kinds[0] = CLOCK_OTHER, s->clock->n = 1;
    be->clock = turn;
    be->clock_read = read_clock;
    be->profile = profile;
}

void cuda_clock_close(struct backend *be) {
    struct cuda_clock *c = cuda_state(be)->clock;
    for (int i = 0; i < MARKS; i++) cuda_check(cudaEventDestroy(c->events[i]));
    cuda_check(cudaFree(c->begins));
    cuda_check(cudaFreeHost(c->sums));
    memory_free(c);
}
