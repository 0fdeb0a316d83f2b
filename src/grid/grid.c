#include "config.h"
#include "grid/grid.h"
#include "base/die.h"
#include "base/memory.h"
#include "base/text.h"
#include "grid/watchdog.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int64_t grid_launched(const char **variable) {
    /* Inside an allocation SLURM_NTASKS is also set for the batch script itself, where one process
     * is right; SLURM_STEP_NUM_TASKS is set for the tasks of an srun step only. */
    static const char *const variables[] = {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE",
                                            "PMI_SIZE", "PALS_NRANKS", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *s = getenv(variables[i]);
        int64_t n;
        if (s && text_to_int(s, &n) && n > 1) return *variable = variables[i], n;
    }
    return 0;
}

void grid_guard_launch(int n_ranks) {
    const char *variable = NULL;
    int64_t tasks = grid_launched(&variable);
    if (n_ranks > 1 || tasks <= 1) return;
    /* Every task is alone and each would print: the first speaks for all. */
    const char *id = getenv("SLURM_PROCID");
    if (!id) id = getenv("PMI_RANK");
    if (id && strcmp(id, "0") != 0) leave(EXIT_CONFIG);
    if (strncmp(variable, "SLURM", 5) == 0)
        die_user(
            EXIT_CONFIG,
            "srun started %lld tasks, but each sees one MPI rank: this MPI needs another PMI; try "
            "srun --mpi=pmi2 (MPICH), srun --mpi=pmix (Open MPI); srun --mpi=list names what there "
            "is",
            (long long)tasks);
    die_user(EXIT_CONFIG,
             "the launcher started %lld processes (%s), but each sees one MPI rank: it belongs to "
             "another MPI "
             "than the one regulon was built with; use that one's mpiexec",
             (long long)tasks, variable);
}

char *grid_refusal(int n_ranks, int *dp_size, int ep_size) {
    if (*dp_size == 0 && n_ranks % ep_size == 0) *dp_size = n_ranks / ep_size;
    if (*dp_size == 0)
        return memory_format("parallelism.ep_size: %d does not divide the %d ranks of this job",
                             ep_size, n_ranks);
    if ((long long)*dp_size * ep_size != n_ranks)
        return memory_format(
            "parallelism.dp_size %d x parallelism.ep_size %d needs %lld ranks, this job has %d: "
            "start it with mpiexec -n %lld (or srun -n %lld), or change the sizes",
            *dp_size, ep_size, (long long)*dp_size * ep_size, n_ranks,
            (long long)*dp_size * ep_size, (long long)*dp_size * ep_size);
    return NULL;
}

/* Nodes of the ep group that is on most. Its ranks are neighbours, and so are those of a node where
 * the launcher fills one after the other; else a node is counted for each of its runs. */
static int most_nodes(const struct grid *g) {
    int node = g->rank, nodes = 1, *of = memory_alloc_array((size_t)g->ep_size, sizeof *of);
    MPI_Bcast(&node, 1, MPI_INT, 0, g->node);
    MPI_Allgather(&node, 1, MPI_INT, of, 1, MPI_INT, g->ep);
    for (int r = 1; r < g->ep_size; r++) nodes += of[r] != of[r - 1];
    memory_free(of);
    MPI_Allreduce(MPI_IN_PLACE, &nodes, 1, MPI_INT, MPI_MAX, g->world);
    return nodes;
}

void grid_open(struct grid *g, MPI_Comm comm, int dp_size, int ep_size) {
    MPI_Comm_dup(comm, &g->world);
    MPI_Comm_rank(g->world, &g->rank);
    MPI_Comm_size(g->world, &g->n_ranks);
    g->dp_size = dp_size, g->ep_size = ep_size;
    g->dp_rank = g->rank / ep_size, g->ep_rank = g->rank % ep_size;
    MPI_Comm_split(g->world, g->ep_rank, g->dp_rank, &g->dp);
    MPI_Comm_split(g->world, g->dp_rank, g->ep_rank, &g->ep);
    MPI_Comm_split_type(g->world, MPI_COMM_TYPE_SHARED, g->rank, MPI_INFO_NULL, &g->node);
    MPI_Comm_rank(g->node, &g->node_rank);
    MPI_Comm_size(g->node, &g->node_size);
    int first = g->node_rank == 0;
    MPI_Allreduce(&first, &g->n_nodes, 1, MPI_INT, MPI_SUM, g->world);
    g->ep_nodes = most_nodes(g);
}

void grid_close(struct grid *g) {
    MPI_Comm_free(&g->node);
    MPI_Comm_free(&g->ep);
    MPI_Comm_free(&g->dp);
    MPI_Comm_free(&g->world);
}

int agree_int(const struct grid *g, int value) {
    MPI_Bcast(&value, 1, MPI_INT, 0, g->world);
    return value;
}

int agree_any(const struct grid *g, int condition) {
    int any;
    MPI_Allreduce(&condition, &any, 1, MPI_INT, MPI_LOR, g->world);
    return any;
}

void agree_sum(const struct grid *g, double *x, int n) {
    MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_SUM, g->world);
}

void agree_bytes(const struct grid *g, void *data, int64_t bytes) {
    enum { SOME = 1 << 28 }; /* MPI counts in int */
    for (int64_t at = 0; at < bytes; at += SOME) {
        watchdog_progress();
        MPI_Bcast((char *)data + at, (int)(bytes - at < SOME ? bytes - at : SOME), MPI_BYTE, 0,
                  g->world);
    }
}

char *agree_problem(const struct grid *g, char *problem) {
    int mine = problem ? g->rank : g->n_ranks, first, n = 0;
    char host[256] = "", *text = NULL;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, g->world);
    if (first == g->n_ranks) return NULL;
    if (g->rank == first) {
        gethostname(host, sizeof host - 1);
        text = memory_format("rank %d on %s: %s", g->rank, host, problem);
        n = (int)strlen(text);
    }
    memory_free(problem);
    MPI_Bcast(&n, 1, MPI_INT, first, g->world);
    if (g->rank != first) text = memory_alloc((size_t)n + 1);
    MPI_Bcast(text, n, MPI_CHAR, first, g->world);
    return text;
}
