#include "config.h"
#include "backend/backend.h"
#include "backend/cpu.h"
#include "backend/cuda_sizes.h"
#include "base/memory.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef HAVE_CUDA
#include "backend/cuda.h"

static int is_cuda(const char *name) {
    return strcmp(name, "cuda") == 0;
}
#endif

int backend_exists(const char *name) {
#ifdef HAVE_CUDA
    if (is_cuda(name)) return 1;
#endif
    return strcmp(name, "cpu") == 0;
}

char *backend_refusal(const char *name, const struct grid *g) {
    char *problem =
        backend_exists(name) ? NULL : memory_format("this program was built without %s", name);
#ifdef HAVE_CUDA
    if (!problem && is_cuda(name)) problem = cuda_refusal(g);
    if (is_cuda(name) && !agree_any(g, problem != NULL)) problem = cuda_refusal_together(g);
#else
    (void)g;
#endif
    return problem;
}

int backend_capability(const char *name, const struct grid *g) {
#ifdef HAVE_CUDA
    if (is_cuda(name)) return cuda_capability(g);
#endif
    (void)name;
    (void)g;
    return 0;
}

enum low_way backend_low_way(int capability, enum low low, int emulate) {
    return capability ? cuda_low_way(capability, low, emulate) : LOW_EMULATED;
}

/* Threads of this rank: OMP_NUM_THREADS if it is set, else its share of the node's processors:
 * those it is bound to, or, where ranks may run on the same ones, the node's divided by its ranks
 * (two ranks that spin on one core are fifty times slower than they need be). On a GPU they draw
 * weights and prepare data. Collective over grid->node. */
static void choose_threads(const struct grid *g) {
#ifdef _OPENMP
    cpu_set_t mine, all;
    CPU_ZERO(&mine);
    int known = sched_getaffinity(0, sizeof mine, &mine) == 0, n = CPU_COUNT(&mine), sum;
    MPI_Allreduce(&mine, &all, sizeof mine, MPI_BYTE, MPI_BOR, g->node);
    MPI_Allreduce(&n, &sum, 1, MPI_INT, MPI_SUM, g->node);
    if (sum > CPU_COUNT(&all)) n = CPU_COUNT(&all) / g->node_size;
    if (known && !getenv("OMP_NUM_THREADS")) omp_set_num_threads(n > 0 ? n : 1);
#else
    (void)g;
#endif
}

struct backend *backend_open(const char *name, const struct grid *g,
                             const struct backend_options *o) {
    static const struct backend_options none;
    struct backend *be = memory_alloc(sizeof *be);
    be->grid = g;
    be->low_rows = o && o->low_rows;
    choose_threads(g);
    be->sent_rows = memory_alloc_array((size_t)g->ep_size, sizeof *be->sent_rows);
#ifdef HAVE_CUDA
    if (is_cuda(name)) {
        cuda_open(be, o ? o : &none);
        return be;
    }
#endif
    (void)name;
    (void)none;
    (void)o;
    cpu_open(be);
    return be;
}

void backend_reduce_scatter_add(struct backend *be, MPI_Comm comm, float *sum, float *x,
                                const size_t *counts, int without_own) {
    int rank;
    MPI_Comm_rank(comm, &rank);
    float *own = x + backend_first(counts, rank);
    if (without_own) be->zero(be, own, counts[rank] * sizeof *own);
    be->reduce_scatter(be, comm, x, counts);
    be->add(be, sum, own, counts[rank]);
}

void backend_close(struct backend *be) {
    if (!be) return;
    be->close(be);
    memory_free(be->sent_rows);
    memory_free(be);
}
