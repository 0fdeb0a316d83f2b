/* TAP output of the test programs: rank 0 prints, an "ok" means ok on every rank. */
#ifndef REGULON_TESTS_TAP_H
#define REGULON_TESTS_TAP_H

/* MPI_Init, log_open. Collective, first. Then any number of checks, then return tap_close(). */
void tap_open(int *argc, char ***argv);
void tap_ok(int ok, const char *format, ...) __attribute__((format(printf, 2, 3))); /* collective */
void tap_note(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* rank 0 prints "# ..." */
void tap_skip_all(const char *why);        /* collective; ends the program */
int tap_close(void); /* prints the plan, finalizes; 0 if all were ok, else 1 */
#endif
