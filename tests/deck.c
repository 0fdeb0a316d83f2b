/* Not a test but what tests/decks.sh runs: reads a deck as a verb would and prints what came of it.
 *     deck [--all | --info] DECK [key=value ...]    the deck as used.yaml; --all: over all ranks,
 * printed by the last deck --reference | --keys                     the table of keys
 */
#include "config.h"
#include "config/config.h"
#include "base/die.h"
#include "base/log.h"
#include "base/memory.h"
#include <mpi.h>
#include <string.h>

static void print_all(int argc, char **argv) {
    int rank, n;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    log_open(rank);
    struct config *c = config_load_all(argv[2], argv + 3, argc - 3);
    if (rank == n - 1) {
        printf("# %s\n", c->deck_name);
        config_write(c, stdout);
    }
    config_free(c);
}

int main(int argc, char **argv) {
    log_open(0);
    if (argc < 2) return EXIT_USAGE;
    if (strcmp(argv[1], "--reference") == 0)
        config_write_reference(stdout);
    else if (strcmp(argv[1], "--keys") == 0)
        config_write_help(stdout);
    else if (strcmp(argv[1], "--info") == 0 && argc == 3)
        config_info(argv[2], stdout);
    else if (strcmp(argv[1], "--all") == 0 && argc > 2)
        print_all(argc, argv);
    else {
        struct config *c = config_load(argv[1], argv + 2, argc - 2);
        printf("# %s\n", c->deck_name);
        config_write(c, stdout);
        config_free(c);
    }
    if (memory_live() != 0) die("%lld blocks of memory left", (long long)memory_live());
    leave(EXIT_FINISHED);
}
