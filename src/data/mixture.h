/* Which source of a mixture draw g comes from: a fixed cycle of draws, so that any draw is found at
 * once. */
#ifndef REGULON_DATA_MIXTURE_H
#define REGULON_DATA_MIXTURE_H
#include <stdint.h>

struct mixture;

/* Weights[n_sources] are shares relative to each other; they are rounded to 1/1024 (largest
 * remainder, at least 1/1024 of a source with weight). die_user (78) for more than 1024 sources or
 * weights that are all 0. */
struct mixture *mixture_new(const double *weights, int n_sources);
void mixture_free(struct mixture *m);

/* The source of draw g, and in *index how many draws before g came from it. */
int mixture_source(const struct mixture *m, int64_t g, int64_t *index);

/* How many of the draws before g come from a source. */
int64_t mixture_draws(const struct mixture *m, int source, int64_t g);
#endif
