#include "config.h"
#include "model/stash.h"
#include <math.h>

/* Of a layer, when every expert of the group gets as many tokens. */
static double even_rows(const struct model *m) {
    return (double)m->capacity * m->s.A;
}

/* Of a layer at most. */
static double pads(const struct model *m) {
    return (double)(m->s.E / m->be->grid->ep_size) * (m->be->row_unit - 1);
}

size_t stash_rows(const struct model *m, int n, size_t most) {
    double capacity = m->config->router.capacity, unit = m->be->row_unit, all = (double)most * n,
           rows = ceil(n * (capacity * even_rows(m) + pads(m)) / unit) * unit;
    if (n == 0) return 0;
    if (rows < (double)most) return most;
    return (size_t)(rows < all ? rows : all);
}

double stash_capacity(const struct model *m, int n, double rows) {
    return ceil((rows / n - pads(m)) / even_rows(m) * 100) / 100;
}
