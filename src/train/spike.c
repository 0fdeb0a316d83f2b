#include "config.h"
#include "train/spike.h"
#include "base/median.h"
#include <math.h>
#include <string.h>

struct spike spike_note(struct spike_window *w, double loss, double mads) {
    int n = w->n < SPIKE_WINDOW ? w->n : SPIKE_WINDOW;
    double x[SPIKE_WINDOW];
    struct spike s = {0};
    if (mads > 0 && n >= SPIKE_LEAST) {
        memcpy(x, w->losses, sizeof x);
        s.median = median(x, (size_t)n);
        for (int i = 0; i < n; i++) x[i] = fabs(x[i] - s.median);
        s.mad = fmax(median(x, (size_t)n), 1e-4 * fabs(s.median));
        s.found = loss > s.median + mads * s.mad;
    }
    if (isfinite(loss)) w->losses[w->n++ % SPIKE_WINDOW] = loss;
    return s;
}
