#include "config.h"
#include "model/reduce.h"
#include "model/block.h"
#include "model/stage.h"

/* Fewer bytes of gradients than this travel faster than a pass of so small a model is launched
 * operation by operation. */
static const double WORTH = 1 << 30;

/* Other ranks update parts of tensor i. */
static int travels(const struct model *m, int i) {
    return m->shares[i].gathered && !m->shares[i].frozen;
}

int reduce_beside_wanted(const struct model *m) {
    double bytes = 0;
    int how = m->config->engine.reduce;
    if (m->config->parallelism.shard != SHARD_OPTIMIZER || how == REDUCE_AFTER) return 0;
    for (int i = 0; i < m->params->n; i++)
        if (travels(m, i)) bytes += (double)m->params->list[i].n * sizeof(float);
    return how == REDUCE_BESIDE ? bytes > 0 : m->be->overlaps && bytes >= WORTH;
}

static void reduce(struct model *m, int i) {
    m->be->reduce_scatter(m->be, share_group(m->be->grid, &m->params->list[i]), model_grad(m, i),
                          m->shares[i].counts);
}

void reduce_stage(struct model *m, int k) {
    struct backend *be = m->be;
    int list[STAGE_TENSORS], n = stage_tensors(m, k, list);
    if (!m->reduces) return;
    enum clock before = be->clock(be, CLOCK_REDUCE);
    be->beside(be);
    for (int j = 0; j < n; j++)
        if (travels(m, list[j]) && stage_of(m, list[j]) == k) reduce(m, list[j]);
    be->back(be, REDUCE_TICKET);
    be->clock(be, before);
}

void reduce_finish(struct model *m) {
    struct backend *be = m->be;
    int whole = m->config->parallelism.shard == SHARD_NONE;
    stages_finish(m);
    if (m->reduced) be->await(be, REDUCE_TICKET);
    if (whole) {
        size_t dense = m->sizes.dense_grads;
        be->all_reduce(be, be->grid->world, m->grads, dense);
        be->all_reduce(be, be->grid->dp, m->grads + dense, m->sizes.trained_grads - dense);
        return;
    }
    for (int i = 0; i < m->params->n; i++) {
        const struct share *s = &m->shares[i];
        const struct param *t = &m->params->list[i];
        if (s->frozen || s->staged) continue;
        if (s->replicated)
            be->all_reduce(be, share_group(be->grid, t), model_grad(m, i), t->n);
        else if (!m->reduced)
            reduce(m, i);
    }
}
