/* The median. */
#ifndef REGULON_BASE_MEDIAN_H
#define REGULON_BASE_MEDIAN_H
#include <stddef.h>

/* Of x[n], n at least 1, none of them NaN: the mean of the two in the middle where n is even. Sorts
 * x. */
double median(double *x, size_t n);
#endif
