/* What signals ask of a run. Handlers only set flags, the third global that `base` may have; who
 * runs a loop looks at them and agrees with the other ranks. */
#ifndef REGULON_BASE_STOP_H
#define REGULON_BASE_STOP_H

/* SIGTERM and SIGUSR1: save and leave; SIGUSR2: save and go on. Once, at the start of a run; a
 * second signal is harmless. */
void stop_install(void);
int stop_asked(void);     /* 1 after SIGTERM or SIGUSR1 */
int stop_take_save(void); /* 1 once after each SIGUSR2 */
#endif
