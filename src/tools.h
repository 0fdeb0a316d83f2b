/* Verbs that are programs of their own: `regulon NAME WORD...` becomes `regulon-NAME WORD...`, from
 * the folder of Regulon's tools or else from PATH, as git does it. */
#ifndef REGULON_TOOLS_H
#define REGULON_TOOLS_H
#include <stddef.h>

/* Those that come with Regulon, for the list of verbs. */
struct tool {
    const char *name, *what;
};
extern const struct tool tools[];
extern const size_t n_tools;

/* Becomes regulon-NAME with the words after argv[1], where there is one; never comes back then.
 * Returns when there is none. Ends the program (70) for one of ours that is not installed, and (64)
 * when a launcher started several processes, for each would do the same. Before MPI_Init and
 * h5_open_library: the tool may use both. */
void tools_run(const char *name, char **argv);
#endif
