/* Messages on stderr: "[rank][seconds] module: text". */
#ifndef REGULON_BASE_LOG_H
#define REGULON_BASE_LOG_H

/* Starts the clock and sets the rank that messages carry. Before anything else, on every rank. */
void log_open(int rank);
int log_rank(void);
double log_seconds(void); /* since log_open, seconds */
void log_set_debug(int on);

/* log_info: rank 0 only. log_warn and log_debug: every rank that calls; debug only after
 * log_set_debug(1). */
void log_info(const char *module, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_warn(const char *module, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_debug(const char *module, const char *format, ...) __attribute__((format(printf, 2, 3)));
#endif
