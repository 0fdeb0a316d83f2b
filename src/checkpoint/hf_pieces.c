#include "config.h"
#include "checkpoint/hf_pieces.h"
#include "base/memory.h"
#include <stdio.h>
#include <string.h>

/* Layer number of "model.layers.L.rest", and rest; -1 for other names. */
static int split_layer(const char *name, const char **rest) {
    int layer = -1, used = 0;
    if (sscanf(name, "model.layers.%d.%n", &layer, &used) < 1 || used == 0) return -1;
    *rest = name + used;
    return layer;
}

void hf_each_piece(const struct param *t, enum hf_naming naming,
                   void (*visit)(const struct param *t, const struct hf_piece *p, void *context),
                   void *context) {
    struct hf_piece p = {.n_dims = t->n_dims, .n = (int64_t)t->n};
    memcpy(p.dims, t->dims, sizeof p.dims);
    snprintf(p.name, sizeof p.name, "%s", t->name);
    const char *rest = "";
    int layer = split_layer(t->name, &rest);
    int router = layer >= 0 && strcmp(rest, "mlp.gate.weight") == 0;
    if (router && naming == HF_DENSE) return;
    if (router && naming == HF_OLD)
        snprintf(p.name, sizeof p.name, "model.layers.%d.block_sparse_moe.gate.weight", layer);
    if (t->kind == PARAM_DENSE || naming == HF_FUSED) {
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
            p.expert = first_expert + e;
            if (naming == HF_DENSE)
                snprintf(p.name, sizeof p.name, "model.layers.%d.mlp.%s_proj.weight", layer,
                         up ? (part == 0 ? "gate" : "up") : "down");
            else
                snprintf(p.name, sizeof p.name,
                         "model.layers.%d.block_sparse_moe.experts.%lld.w%d.weight", layer,
                         (long long)p.expert, up ? (part == 0 ? 1 : 3) : 2);
            p.at = (e * parts + part) * p.n;
            visit(t, &p, context);
        }
}

/* ---- the tensors of a folder ---- */

struct listing {
    struct hf_list list;
    int room, param;
    const char *dtype;
};

static void list_piece(const struct param *t, const struct hf_piece *p, void *context) {
    struct listing *l = context;
    struct hf_list *list = &l->list;
    (void)t;
    if (list->n == l->room) {
        l->room = l->room ? 2 * l->room : 256;
        list->tensors = memory_resize(list->tensors, (size_t)l->room * sizeof *list->tensors);
        list->parts = memory_resize(list->parts, (size_t)l->room * sizeof *list->parts);
    }
    struct safetensor s = {
        .name = memory_string(p->name), .dtype = l->dtype, .n_dims = p->n_dims, .n = 1};
    for (int d = 0; d < p->n_dims; d++) s.n *= s.dims[d] = p->dims[d];
    list->tensors[list->n] = s;
    list->parts[list->n++] = (struct hf_part){.param = l->param, .first = p->at};
}

struct hf_list hf_list_new(const struct params *p, const char *dtype) {
    struct listing l = {.dtype = dtype};
    for (l.param = 0; l.param < p->n; l.param++)
        hf_each_piece(&p->list[l.param], HF_OLD, list_piece, &l);
    return l.list;
}

void hf_list_free(struct hf_list *l) {
    for (int i = 0; i < l->n; i++) memory_free(l->tensors[i].name);
    memory_free(l->tensors);
    memory_free(l->parts);
}
