/* A cycle of 1024 draws: shares by the method of the largest remainder, spread by always taking the
 * source that is furthest behind its share. */
#include "config.h"
#include "data/mixture.h"
#include "base/die.h"
#include "base/memory.h"

enum { CYCLE = 1024 };

struct mixture {
    int n_sources;
    int *share;         /* [n_sources], sum CYCLE */
    int source[CYCLE];  /* of draw g mod CYCLE */
    int earlier[CYCLE]; /* draws of the same source before it in the cycle */
};

static int share_out(struct mixture *m, const double *weights) {
    double sum = 0;
    for (int i = 0; i < m->n_sources; i++) sum += weights[i];
    if (!(sum > 0)) return 0;
    int total = 0;
    for (int i = 0; i < m->n_sources; i++) {
        m->share[i] = (int)(weights[i] / sum * CYCLE);
        if (m->share[i] == 0 && weights[i] > 0) m->share[i] = 1;
        total += m->share[i];
    }
    /* one at a time to the source furthest below its weight, or from the one furthest above that
     * has more than 1 */
    while (total != CYCLE) {
        int sign = total < CYCLE ? 1 : -1, chosen = -1;
        double furthest = 0;
        for (int i = 0; i < m->n_sources; i++) {
            double behind = sign * (weights[i] / sum * CYCLE - m->share[i]);
            if (weights[i] == 0 || (sign < 0 && m->share[i] == 1)) continue;
            if (chosen < 0 || behind > furthest) chosen = i, furthest = behind;
        }
        m->share[chosen] += sign;
        total += sign;
    }
    return 1;
}

struct mixture *mixture_new(const double *weights, int n_sources) {
    if (n_sources > CYCLE)
        die_user(EXIT_CONFIG, "dataset.sources: %d are more than %d", n_sources, CYCLE);
    struct mixture *m = memory_alloc(sizeof *m);
    m->n_sources = n_sources;
    m->share = memory_alloc_array((size_t)n_sources, sizeof *m->share);
    if (!share_out(m, weights))
        die_user(EXIT_CONFIG, "dataset.sources: no source has a weight above 0");
    int *taken = memory_alloc_array((size_t)n_sources, sizeof *taken);
    for (int t = 0; t < CYCLE; t++) {
        int next = 0;
        for (int i = 1; i < n_sources; i++) {
            int64_t behind = (int64_t)(t + 1) * m->share[i] - (int64_t)CYCLE * taken[i];
            if (behind > (int64_t)(t + 1) * m->share[next] - (int64_t)CYCLE * taken[next]) next = i;
        }
        m->source[t] = next;
        m->earlier[t] = taken[next]++;
    }
    memory_free(taken);
    return m;
}

void mixture_free(struct mixture *m) {
    if (m == NULL) return;
    memory_free(m->share);
    memory_free(m);
}

int mixture_source(const struct mixture *m, int64_t g, int64_t *index) {
    int i = m->source[g % CYCLE];
    *index = g / CYCLE * m->share[i] + m->earlier[g % CYCLE];
    return i;
}

int64_t mixture_draws(const struct mixture *m, int source, int64_t g) {
    int64_t n = g / CYCLE * m->share[source];
    for (int t = 0; t < g % CYCLE; t++) n += m->source[t] == source;
    return n;
}
