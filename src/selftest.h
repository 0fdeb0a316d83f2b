/* `regulon selftest [--path DIR]`: is this machine, and is this folder, fit for a run? */
#ifndef REGULON_SELFTEST_H
#define REGULON_SELFTEST_H
#include "grid/grid.h"
#include <stdint.h>

/* Prints a line a check, "ok" or "FAILED", with figures. Collective over all ranks; returns the
 * exit code: 0, 74 when something failed in DIR, 70 when something else did. */
int selftest_main(int argc, char **argv);

/* ---- within selftest*.c ---- */

struct selftest {
    const struct grid *g;
    int failed; /* checks so far */
};

/* One check's line: "ok NAME FIGURES", or, when a rank has a problem, "FAILED NAME rank R on HOST:
 * PROBLEM" of the lowest one. `problem` is freed; the figures are rank 0's. Collective over world.
 * Returns 1 for ok. */
int selftest_line(struct selftest *t, const char *name, char *problem, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The checks of a folder; bytes a rank are written for the speed, less where space is short. All
 * files it makes are named regulon-probe-* or regulon-selftest-* and are gone afterwards.
 * Collective over world. */
void selftest_path(struct selftest *t, const char *folder, int64_t bytes);
#endif
