#include "config.h"
#include "checkpoint/hf_pieces.h"
#include <stdio.h>
#include <string.h>

/* Layer number of "model.layers.L.rest", and rest; -1 for other names. */
static int split_layer(const char *name, const char **rest) {
    int layer = -1, used = 0;
    if (sscanf(name, "model.layers.%d.%n", &layer, &used) < 1 || used == 0) return -1;
    *rest = name + used;
    return layer;
}

void hf_each_piece(const struct param *t, int old,
                   void (*visit)(const struct param *t, const struct hf_piece *p, void *context),
                   void *context) {
    struct hf_piece p = {.n_dims = t->n_dims, .n = (int64_t)t->n};
    memcpy(p.dims, t->dims, sizeof p.dims);
    snprintf(p.name, sizeof p.name, "%s", t->name);
    const char *rest = "";
    int layer = split_layer(t->name, &rest);
    if (layer >= 0 && old && strcmp(rest, "mlp.gate.weight") == 0)
        snprintf(p.name, sizeof p.name, "model.layers.%d.block_sparse_moe.gate.weight", layer);
    if (t->kind == PARAM_DENSE || !old) {
        p.first = t->first_row * t->cols;
        visit(t, &p, context);
        return;
    }
    int up = strcmp(rest, "mlp.experts.gate_up_proj") == 0, parts = up ? 2 : 1;
    int64_t rows = t->dims[1] / parts, first_expert = t->first_row / t->dims[1],
            n_experts = t->rows / t->dims[1];
    p.n_dims = 2, p.dims[0] = rows, p.dims[1] = t->cols, p.n = rows * t->cols;
    for (int64_t e = 0; e < n_experts; e++)
        for (int part = 0; part < parts; part++) {
            snprintf(p.name, sizeof p.name,
                     "model.layers.%d.block_sparse_moe.experts.%lld.w%d.weight", layer,
                     (long long)(first_expert + e), up ? (part == 0 ? 1 : 3) : 2);
            p.at = (e * parts + part) * p.n;
            visit(t, &p, context);
        }
}
