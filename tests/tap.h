/* TAP output of the test programs: rank 0 prints, an "ok" means ok on every rank. */
#ifndef REGULON_TESTS_TAP_H
#define REGULON_TESTS_TAP_H

/* MPI_Init, log_open. Collective, first. Then any number of checks, then return tap_close(). */
void tap_open(int *argc, char ***argv);
void tap_ok(int ok, const char *format, ...) __attribute__((format(printf, 2, 3))); /* collective */
void tap_note(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* rank 0 prints "# ..." */
void tap_skip_all(const char *why);        /* collective; ends the program */
/* 1 if round `number` of 1 .. n is wanted: all are, or those that the program's words name, for
 * tools that slow a program down. Other words end it. Collective. */
int tap_wanted(int argc, char **argv, int number, int n);
int tap_close(void); /* prints the plan, finalizes; 0 if all were ok, else 1 */
#endif
