/* regulon VERB ...: finds the verb and runs it. */
#include "config.h"
#include "base/die.h"
#include "base/log.h"
#include "base/revision.h"
#include "base/text.h"
#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* One verb: gets the words after its name, returns the exit code. All verbs run with MPI initialised. */
struct verb {
    const char *name, *what;
    int (*run)(int argc, char **argv);
};

static const struct verb verbs[] = {
    {NULL, NULL, NULL},
};

int main(int argc, char **argv) {
    (void)verbs;
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    log_open(rank);
    if (rank == 0) printf("%s %s\n", PACKAGE_STRING, revision_name());
    leave(EXIT_FINISHED);
}
