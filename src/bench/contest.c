#include "config.h"
#include "bench/contest.h"
#include "base/median.h"
#include <assert.h>
#include <stddef.h>

/* Seconds of `calls` calls, one after the other. */
static double block(const struct contender *c, int calls) {
    struct backend *be = c->be;
    double seconds[N_CLOCKS], sum = 0;
    be->download(be, NULL, NULL, 0);
    be->clock_read(be, seconds);
    be->clock(be, CLOCK_FORWARD);
    for (int k = 0; k < calls; k++) c->run(c->context);
    be->clock(be, CLOCK_OTHER);
    be->download(be, NULL, NULL, 0);
    be->clock_read(be, seconds);
    for (int k = 0; k < N_CLOCKS; k++) sum += k == CLOCK_OTHER ? 0 : seconds[k];
    return sum;
}

void contest(const struct contender *list, int n, double seconds, double *result) {
    double times[CONTEST_MOST][CONTEST_ROUNDS];
    int calls[CONTEST_MOST];
    assert(n <= CONTEST_MOST);
    for (int i = 0; i < n; i++) {
        block(&list[i], 1);
        calls[i] = (int)(seconds / CONTEST_ROUNDS / block(&list[i], 2) * 2) + 1;
    }
    for (int round = -1; round < CONTEST_ROUNDS; round++)
        for (int k = 0; k < n; k++) {
            int i = round % 2 ? n - 1 - k : k;
            double s = block(&list[i], calls[i]) / calls[i];
            if (round >= 0) times[i][round] = s;
        }
    for (int i = 0; i < n; i++) result[i] = median(times[i], CONTEST_ROUNDS);
}
