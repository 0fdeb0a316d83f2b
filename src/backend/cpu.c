/* The CPU backend: its threads, and the table put together. */
#include "config.h"
#include "backend/cpu.h"
#include "base/memory.h"
#include <sched.h>
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* Threads of this rank: OMP_NUM_THREADS if it is set, else its share of the node's processors:
 * those it is bound to, or, where ranks may run on the same ones, the node's divided by its ranks
 * (two ranks that spin on one core are fifty times slower than they need be). Collective over
 * grid->node. */
static int choose_threads(const struct grid *g) {
#ifdef _OPENMP
    cpu_set_t mine, all;
    CPU_ZERO(&mine);
    int known = sched_getaffinity(0, sizeof mine, &mine) == 0, n = CPU_COUNT(&mine), sum;
    MPI_Allreduce(&mine, &all, sizeof mine, MPI_BYTE, MPI_BOR, g->node);
    MPI_Allreduce(&n, &sum, 1, MPI_INT, MPI_SUM, g->node);
    if (sum > CPU_COUNT(&all)) n = CPU_COUNT(&all) / g->node_size;
    if (known && !getenv("OMP_NUM_THREADS")) omp_set_num_threads(n > 0 ? n : 1);
    return omp_get_max_threads();
#else
    (void)g;
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
    int n_threads = choose_threads(be->grid);
    be->name = "cpu";
    be->row_unit = 1;
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
