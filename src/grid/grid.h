/* The ranks as a dp x ep grid: rank = dp_rank * ep_size + ep_rank, so that an expert-parallel group
 * is a run of neighbouring ranks. Dense parameters are held by all ranks, the experts of an ep rank
 * by its dp group. */
#ifndef REGULON_GRID_GRID_H
#define REGULON_GRID_GRID_H
#include <mpi.h>
#include <stdint.h>

struct grid {
    MPI_Comm world, dp, ep,
        node; /* dp: the ranks with this ep_rank; ep: with this dp_rank; node: on this host */
    int rank, n_ranks;
    int dp_rank, dp_size, ep_rank, ep_size;
    int node_rank, node_size, n_nodes;
    int ep_nodes; /* nodes of the ep group that is on most, of all groups */
};

/* How many processes the launcher says that it started, and the variable that says so; 0: nothing
 * says so, or 1. (Some count those of one host only.) */
int64_t grid_launched(const char **variable);

/* Refuses (exit 78) a launch in which every task sees one MPI rank although the launcher started
 * several: `srun` without a PMI, or an mpiexec of another MPI. Before any file is touched. */
void grid_guard_launch(int n_ranks);

/* NULL when dp_size x ep_size ranks can serve; dp_size 0 means n_ranks / ep_size and is set.
 * Otherwise the reason, to be freed by the caller. On one rank. */
char *grid_refusal(int n_ranks, int *dp_size, int ep_size);

/* The ranks of `comm` as a grid of its own, whose `world` is a copy of it: MPI_COMM_WORLD for a
 * run; tests also open grids of fewer ranks. Collective over comm, whose size must be dp_size x
 * ep_size. grid_close frees the communicators. */
void grid_open(struct grid *g, MPI_Comm comm, int dp_size, int ep_size);
void grid_close(struct grid *g);

/* Decisions that change control flow: taken on one rank or reduced, the same on all. Collective
 * over world. */
int agree_int(const struct grid *g, int value_on_rank_0);
int agree_any(const struct grid *g, int condition);
void agree_sum(const struct grid *g, double *x, int n); /* x[n] become their sums over the ranks */

/* Rank 0's data[bytes], of any size, on every rank. Collective over world. */
void agree_bytes(const struct grid *g, void *data, int64_t bytes);

/* The problem of the lowest rank that has one, on every rank, as "rank 3 on node17: PROBLEM"; NULL
 * when every rank passes NULL. `problem` is freed; the caller frees the result. Collective over
 * world. */
char *agree_problem(const struct grid *g, char *problem);
#endif
