/* The CPU backend: the table put together. */
#include "config.h"
#include "backend/cpu.h"
#include "base/memory.h"
#ifdef _OPENMP
#include <omp.h>
#endif

static int n_threads_here(void) {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

static void cpu_close(struct backend *be) {
    cpu_memory_close(be);
    memory_free((char *)(uintptr_t)be->details);
}

static int replay(struct backend *be, struct recording what) {
    (void)be;
    (void)what;
    return 0;
}

static void recorded(struct backend *be) {
    (void)be;
}

static int operations(struct backend *be, void (*work)(void *), void *context) {
    (void)be;
    (void)work;
    (void)context;
    return 0;
}

/* All work is done when it is asked for. */
static void beside(struct backend *be) {
    (void)be;
}

static void with_ticket(struct backend *be, int ticket) {
    (void)be;
    (void)ticket;
}

void cpu_open(struct backend *be) {
    int n_threads = n_threads_here();
    be->name = "cpu";
    be->row_unit = 1;
    be->own_unit = 1;
    be->engines = "experts loop, attention own, exchange mpi";
    be->close = cpu_close;
    be->replay = replay;
    be->recorded = recorded;
    be->operations = operations;
    be->beside = beside;
    be->back = with_ticket;
    be->await = with_ticket;
    be->real_bytes = sizeof(float);
    be->peak_side = 512;
    char *gemm = cpu_gemm_name();
    be->details =
        memory_format("%s, %d thread%s a rank", gemm, n_threads, n_threads == 1 ? "" : "s");
    memory_free(gemm);
    cpu_gemm_open();
    cpu_memory_open(be, n_threads);
    cpu_fill_dense(be);
    cpu_fill_attention(be);
    cpu_fill_route(be);
    cpu_fill_exchange(be);
    cpu_fill_experts(be);
    cpu_fill_low(be);
    cpu_fill_head(be);
    cpu_fill_optimizer(be);
    cpu_fill_collectives(be);
}
