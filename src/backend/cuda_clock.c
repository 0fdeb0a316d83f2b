/* Time by events on the main stream: what was enqueued while the clock stood on a kind counts as
 * it, gaps included. */
#include "config.h"
#include "backend/cuda.h"
#include "base/memory.h"
#include <cuda_profiler_api.h>
#include <string.h>

enum { MARKS = 4096 }; /* more turns between two readings count as the kind before */

struct cuda_clock {
    cudaEvent_t events[MARKS];
    enum clock kinds[MARKS]; /* from event i on */
    int n;
};

static void mark(struct cuda_state *s, enum clock what) {
    struct cuda_clock *c = s->clock;
    if (c->n == MARKS) return;
    cuda_check(cudaEventRecord(c->events[c->n], s->stream));
    c->kinds[c->n++] = what;
}

static enum clock turn(struct backend *be, enum clock what) {
    struct cuda_state *s = cuda_state(be);
    enum clock before = s->clock->kinds[s->clock->n - 1];
    if (what != before) mark(s, what);
    return before;
}

static void read_clock(struct backend *be, double seconds[N_CLOCKS]) {
    struct cuda_state *s = cuda_state(be);
    struct cuda_clock *c = s->clock;
    enum clock now = c->kinds[c->n - 1];
    memset(seconds, 0, N_CLOCKS * sizeof *seconds);
    for (int i = 0; i + 1 < c->n; i++) {
        float ms;
        cuda_check(cudaEventSynchronize(c->events[i + 1]));
        cuda_check(cudaEventElapsedTime(&ms, c->events[i], c->events[i + 1]));
        seconds[c->kinds[i]] += (double)ms / 1e3;
    }
    c->n = 0;
    mark(s, now);
}

static void profile(struct backend *be, int on) {
    cuda_wait(be);
    cuda_check(on ? cudaProfilerStart() : cudaProfilerStop());
}

void cuda_fill_clock(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    s->clock = memory_alloc(sizeof *s->clock);
    for (int i = 0; i < MARKS; i++) cuda_check(cudaEventCreate(&s->clock->events[i]));
    mark(s, CLOCK_OTHER);
    be->clock = turn;
    be->clock_read = read_clock;
    be->profile = profile;
}

void cuda_clock_close(struct backend *be) {
    struct cuda_clock *c = cuda_state(be)->clock;
    for (int i = 0; i < MARKS; i++) cuda_check(cudaEventDestroy(c->events[i]));
    memory_free(c);
}
