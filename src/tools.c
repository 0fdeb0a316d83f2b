#include "config.h"
#include "tools.h"
#include "base/die.h"
#include "base/memory.h"
#include "base/place.h"
#include "grid/grid.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const struct tool tools[] = {
    {"report", "figures and a page of one run or several"},
    {"watch", "a run in the terminal while it goes on"},
    {"convert-metrics", "metrics.h5 to CSV, JSON lines or TensorBoard"},
    {"scaling", "throughput and cost of runs against their ranks"},
    {"grids", "speed, memory and losses of one model on several grids"},
    {"compare", "are two runs the same, and where do they part?"},
    {"experts", "what the experts of a model specialise in"},
};
const size_t n_tools = sizeof tools / sizeof *tools;

static int is_ours(const char *name) {
    for (size_t i = 0; i < n_tools; i++)
        if (strcmp(tools[i].name, name) == 0) return 1;
    return 0;
}

/* folder/regulon-NAME if it can be run, else NULL. An empty folder in PATH is the working folder.
 */
static char *runnable(const char *folder, size_t length, const char *name) {
    struct stat s;
    char *path = length ? memory_format("%.*s/regulon-%s", (int)length, folder, name)
                        : memory_format("./regulon-%s", name);
    if (stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0) return path;
    memory_free(path);
    return NULL;
}

static char *find(const char *folder, const char *name) {
    char *path = runnable(folder, strlen(folder), name);
    const char *rest = getenv("PATH");
    while (!path && rest) {
        size_t n = strcspn(rest, ":");
        path = runnable(rest, n, name);
        rest = rest[n] ? rest + n + 1 : NULL;
    }
    return path;
}

/* The first of the processes that a launcher started speaks for all. */
static void refuse_launch(const char *name) {
    static const char *const ranks[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PALS_RANKID",
                                        "SLURM_PROCID"};
    const char *variable, *rank = NULL;
    if (grid_launched(&variable) == 0) return;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks && !rank; i++) rank = getenv(ranks[i]);
    if (rank && strcmp(rank, "0") != 0) leave(EXIT_USAGE);
    die_user(EXIT_USAGE, "%s is one process: start it without mpiexec or srun", name);
}

void tools_run(const char *name, char **argv) {
    if (name[0] == '-' || name[0] == 0 || strchr(name, '/')) return;
    char *folder = place_folder(SOURCE_FOLDER "/analysis", TOOLS_FOLDER),
         *path = find(folder, name);
    if (path || is_ours(name)) refuse_launch(name);
    if (path) {
        argv[1] = path; /* the words after the verb stay where they are */
        execv(path, argv + 1);
        die_user(EXIT_INTERNAL, "%s: %s", path, strerror(errno));
    }
    if (is_ours(name))
        die_user(EXIT_INTERNAL, "regulon-%s is neither in %s nor in PATH", name, folder);
    memory_free(folder);
}
