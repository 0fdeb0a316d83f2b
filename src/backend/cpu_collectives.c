/* Collectives over MPI, on host memory. */
#include "config.h"
#include "backend/cpu.h"
#include <assert.h>
#include <limits.h>
#include <string.h>

enum { MOST = 1 << 30 }; /* elements a call: MPI counts are int */

static void all_reduce(struct backend *be, MPI_Comm comm, float *x, size_t n) {
    (void)be;
    for (size_t at = 0; at < n; at += MOST)
        MPI_Allreduce(MPI_IN_PLACE, x + at, (int)(n - at < MOST ? n - at : MOST), MPI_FLOAT,
                      MPI_SUM, comm);
}

/* counts[P] as int, with their prefix sums in places[P]; valid until the next exchange. */
static void to_ints(struct backend *be, MPI_Comm comm, const size_t *counts, int **out,
                    int **places) {
    int P;
    MPI_Comm_size(comm, &P);
    *out = (int *)cpu_exchange_buffer(be, SEND_BUFFER, (size_t)P * 2);
    *places = *out + P;
    size_t sum = 0;
    for (int r = 0; r < P; r++) {
        (*out)[r] = (int)counts[r];
        (*places)[r] = (int)sum;
        sum += counts[r];
    }
    assert(sum <= INT_MAX);
}

static void reduce_scatter(struct backend *be, MPI_Comm comm, float *x, const size_t *counts) {
    int rank, *n, *places;
    MPI_Comm_rank(comm, &rank);
    to_ints(be, comm, counts, &n, &places);
    float *mine = cpu_exchange_buffer(be, RECEIVE_BUFFER, counts[rank]);
    MPI_Reduce_scatter(x, mine, n, MPI_FLOAT, MPI_SUM, comm);
    if (counts[rank]) memcpy(x + places[rank], mine, counts[rank] * sizeof *x);
}

static void all_gather(struct backend *be, MPI_Comm comm, real_t *x, const size_t *counts) {
    int *n, *places;
    to_ints(be, comm, counts, &n, &places);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, x, n, places, MPI_FLOAT, comm);
}

static void sum_uint32(struct backend *be, MPI_Comm comm, uint32_t *x, size_t n) {
    (void)be;
    MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_UINT32_T, MPI_SUM, comm);
}

static void sum_double(struct backend *be, MPI_Comm comm, double *x, size_t n) {
    (void)be;
    MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_DOUBLE, MPI_SUM, comm);
}

void cpu_fill_collectives(struct backend *be) {
    be->all_reduce = all_reduce;
    be->reduce_scatter = reduce_scatter;
    be->reduce_scatter_add = backend_reduce_scatter_add;
    be->all_gather = all_gather;
    be->sum_uint32 = sum_uint32;
    be->sum_double = sum_double;
}
