/* How the program ends: the two kinds of error that are not bugs, and the one way out. */
#ifndef REGULON_BASE_DIE_H
#define REGULON_BASE_DIE_H
#include <stdnoreturn.h>
#include <sysexits.h>

/* Exit codes, the same on all ranks (sysexits.h where it has them). */
enum exit_code {
    EXIT_FINISHED = 0,
    EXIT_USAGE = EX_USAGE,       /* 64 wrong command line */
    EXIT_DATA = EX_DATAERR,      /* 65 bad input data */
    EXIT_INTERNAL = EX_SOFTWARE, /* 70 a bug, or the system failed */
    EXIT_IO = EX_IOERR,          /* 74 input or output failed */
    EXIT_SAVED = EX_TEMPFAIL,    /* 75 saved and unfinished */
    EXIT_NONFINITE = 76,         /* stopped on non-finite numbers */
    EXIT_CONFIG = EX_CONFIG,     /* 78 configuration or launch */
};

/* Calls `tell` before this rank ends, in leave (dies: 0) or in die (1); NULL: nobody is told. For
 * the watchdog, which lies above this layer. */
void die_tell(void (*tell)(int code, int dies));

/* The system failed: prints "[rank][seconds] file:line: text" and ends all ranks through MPI_Abort.
 * Any rank, at any time. die: exit 70; die_io: exit 74. errno's text is for the caller to add. */
noreturn void die_at(const char *file, int line, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define die(...) die_at(__FILE__, __LINE__, EXIT_INTERNAL, __VA_ARGS__)
#define die_io(...) die_at(__FILE__, __LINE__, EXIT_IO, __VA_ARGS__)

/* The user's mistake: prints the text, no source line, and ends every rank with `code`. Called on
 * rank 0 while the other ranks are on their way to user_agree(); they leave there with the same
 * code. On another rank it ends the job through MPI_Abort with the code. */
noreturn void die_user(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The end of a stretch in which rank 0 looks for the user's mistakes. Collective over all ranks.
 * Returns on every rank, or, when rank 0 called die_user, on none. */
void user_agree(void);

/* What leave does first on this rank, and so die_user too, but die does not: one job, the last that
 * was given; NULL: nothing. */
void before_leave(void (*job)(void *context), void *context);

/* Ends this rank with `code`: output flushed, MPI finalized, then _exit. Collective: every rank
 * calls it with the same code. Files must be closed by then. */
noreturn void leave(int code);
#endif
