#include "config.h"
#include "train/spike.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts x[n]. */
static double median_of(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

struct spike spike_note(struct spike_window *w, double loss, double mads) {
    int n = w->n < SPIKE_WINDOW ? w->n : SPIKE_WINDOW;
    double x[SPIKE_WINDOW];
    struct spike s = {0};
    if (mads > 0 && n >= SPIKE_LEAST) {
        memcpy(x, w->losses, sizeof x);
        s.median = median_of(x, n);
        for (int i = 0; i < n; i++) x[i] = fabs(x[i] - s.median);
        s.mad = fmax(median_of(x, n), 1e-4 * fabs(s.median));
        s.found = loss > s.median + mads * s.mad;
    }
    if (isfinite(loss)) w->losses[w->n++ % SPIKE_WINDOW] = loss;
    return s;
}
