/* regulon VERB ...: finds the verb and runs it. */
#include "config.h"
#include "base/die.h"
#include "base/h5.h"
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

int pack_main(int argc, char **argv);

static const struct verb verbs[] = {
    {"pack", "FASTA, FASTQ, JSON lines or ready token files to a packed corpus", pack_main},
    {NULL, NULL, NULL},
};

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    log_open(rank);
    h5_open_library();
    for (const struct verb *v = verbs; argc > 1 && v->name; v++)
        if (strcmp(argv[1], v->name) == 0) leave(v->run(argc - 2, argv + 2));
    if (rank == 0) printf("%s %s\n", PACKAGE_STRING, revision_name());
    leave(EXIT_FINISHED);
}
