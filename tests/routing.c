/* How bench spreads tokens over experts: shares add up, counts add up and follow them. */
#include "config.h"
#include "bench/routing.h"
#include "tap.h"
#include <math.h>
#include <string.h>

enum { MOST = 256 };

static int wrong_shares(const double *weights, int E) {
    double sum = 0;
    int bad = 0;
    for (int e = 0; e < E; e++) sum += weights[e], bad += !(weights[e] >= 0);
    return bad + !(fabs(sum - 1) < 1e-12);
}

static int wrong_counts(const double *weights, const int64_t *counts, int E, int64_t rows) {
    int64_t sum = 0;
    int bad = 0;
    for (int e = 0; e < E; e++) {
        sum += counts[e];
        bad += counts[e] < 0 || (weights[e] == 0 && counts[e] > 0) ||
               fabs((double)counts[e] - weights[e] * (double)rows) > 2;
    }
    return bad + (sum != rows);
}

static double largest(const double *weights, int E) {
    double most = 0;
    for (int e = 0; e < E; e++) most = fmax(most, weights[e]);
    return most;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"balanced", "skew:0.3", "skew:1", "half", "empty", "one"};
    static const int64_t rows[] = {0, 1, 7, 1000, 65536};
    double weights[MOST];
    int64_t counts[MOST];
    tap_open(&argc, &argv);
    for (int k = 0; k < 6; k++) {
        int bad = 0;
        for (int E = 1; E <= MOST; E += E < 20 ? 1 : 59) {
            bad += !routing_weights(names[k], weights, E) + wrong_shares(weights, E);
            for (int r = 0; r < 5; r++) {
                routing_counts(weights, counts, E, rows[r]);
                bad += wrong_counts(weights, counts, E, rows[r]);
            }
        }
        tap_ok(bad == 0, "%s: %d wrong", names[k], bad);
    }
    routing_weights("half", weights, 64);
    tap_ok(fabs(weights[0] - 0.5) < 1e-12 && fabs(weights[9] - 0.5 / 63) < 1e-12,
           "half: one expert has it, the others the rest alike");
    routing_weights("skew:0.3", weights, 64);
    double mild = largest(weights, 64);
    routing_weights("skew:1", weights, 64);
    tap_ok(mild > 1.0 / 64 && largest(weights, 64) > 2 * mild, "skew: more of it is more uneven");
    static const int64_t skewed[] = {485, 2638, 1555, 3438, 1692, 1226, 3195, 2159};
    routing_weights("skew:1", weights, 8);
    routing_counts(weights, counts, 8, 16388);
    tap_ok(memcmp(counts, skewed, sizeof skewed) == 0, "skew: the rows that peers are timed with");
    tap_ok(!routing_weights("skew:", weights, 4) && !routing_weights("skew:-1", weights, 4) &&
               !routing_weights("others", weights, 4),
           "other names are refused");
    return tap_close();
}
