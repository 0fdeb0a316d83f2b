#include "config.h"
#include "model/params.h"
#include "base/memory.h"
#include "base/random.h"
#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Appends a tensor of the dims a, b, c (0: absent); `joined`: right behind the one before. */
static int append(struct params *p, const struct grid *g, enum param_kind kind,
                  enum param_group group, float std, int joined, int64_t a, int64_t b, int64_t c,
                  const char *format, ...) {
    struct param *t = &p->list[p->n];
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
    t->kind = kind, t->group = group, t->std = std, t->joined = joined;
    t->n_dims = c ? 3 : b ? 2 : 1;
    t->dims[0] = a, t->dims[1] = b, t->dims[2] = c;
    t->cols = t->dims[t->n_dims - 1];
    t->rows = 1;
    for (int d = 0; d + 1 < t->n_dims; d++) t->rows *= t->dims[d];
    if (kind == PARAM_EXPERT) {
        t->rows /= g->ep_size;
        t->first_row = t->rows * g->ep_rank;
    }
    t->n = (size_t)t->rows * (size_t)t->cols;
    if (!joined) p->size = (p->size + PARAMS_ALIGN - 1) / PARAMS_ALIGN * PARAMS_ALIGN;
    t->offset = p->size;
    p->size += t->n;
    return p->n++;
}

struct params *params_new(const struct shape *s, const struct grid *g, const struct config *c) {
    struct params *p = memory_alloc(sizeof *p);
    int64_t D = s->D, F = s->F, E = s->E, V = s->V, HK = (int64_t)s->H * s->K,
            GK = (int64_t)s->G * s->K;
    float std = (float)c->model.initializer_range, out = std;
    float embed_std = c->model.init_embedding_std > 0 ? (float)c->model.init_embedding_std : std;
    if (c->model.init_scaled_outputs) out /= sqrtf(2 * (float)s->L);
    p->list = memory_alloc_array((size_t)s->L * 9 + 3, sizeof *p->list);
    p->layers = memory_alloc_array((size_t)s->L, sizeof *p->layers);
    p->embed = append(p, g, PARAM_DENSE, GROUP_EMBEDDING, embed_std, 0, V, D, 0,
                      "model.embed_tokens.weight");
    for (int l = 0; l < s->L; l++) {
        struct layer_params *y = &p->layers[l];
        const char *at = "model.layers.%d.self_attn.%s_proj.weight";
        y->norm1 = append(p, g, PARAM_DENSE, GROUP_NORM, 0, 0, D, 0, 0,
                          "model.layers.%d.input_layernorm.weight", l);
        y->q = append(p, g, PARAM_DENSE, GROUP_MATRIX, std, 0, HK, D, 0, at, l, "q");
        y->k = append(p, g, PARAM_DENSE, GROUP_MATRIX, std, 1, GK, D, 0, at, l, "k");
        y->v = append(p, g, PARAM_DENSE, GROUP_MATRIX, std, 1, GK, D, 0, at, l, "v");
        y->o = append(p, g, PARAM_DENSE, GROUP_MATRIX, out, 0, D, HK, 0, at, l, "o");
        y->norm2 = append(p, g, PARAM_DENSE, GROUP_NORM, 0, 0, D, 0, 0,
                          "model.layers.%d.post_attention_layernorm.weight", l);
        y->router = append(p, g, PARAM_DENSE, GROUP_MATRIX, std, 0, E, D, 0,
                           "model.layers.%d.mlp.gate.weight", l);
    }
    p->norm = append(p, g, PARAM_DENSE, GROUP_NORM, 0, 0, D, 0, 0, "model.norm.weight");
    p->head = s->tied
                  ? p->embed
                  : append(p, g, PARAM_DENSE, GROUP_EMBEDDING, std, 0, V, D, 0, "lm_head.weight");
    p->n_dense = p->n;
    p->size = (p->size + PARAMS_ALIGN - 1) / PARAMS_ALIGN * PARAMS_ALIGN;
    for (int l = 0; l < s->L; l++) {
        struct layer_params *y = &p->layers[l];
        y->up = append(p, g, PARAM_EXPERT, GROUP_MATRIX, std, 0, E, 2 * F, D,
                       "model.layers.%d.mlp.experts.gate_up_proj", l);
        y->down = append(p, g, PARAM_EXPERT, GROUP_MATRIX, out, 0, E, D, F,
                         "model.layers.%d.mlp.experts.down_proj", l);
    }
    return p;
}

struct params *params_new_whole(const struct shape *s, const struct config *c) {
    const struct grid one = {.n_ranks = 1, .dp_size = 1, .ep_size = 1};
    return params_new(s, &one, c);
}

void params_free(struct params *p) {
    if (!p) return;
    memory_free(p->layers);
    memory_free(p->list);
    memory_free(p);
}

static double elements(const struct param *t) {
    double n = 1;
    for (int d = 0; d < t->n_dims; d++) n *= (double)t->dims[d];
    return n;
}

double params_count(const struct params *p) {
    double sum = 0;
    for (int i = 0; i < p->n; i++) sum += elements(&p->list[i]);
    return sum;
}

double params_active(const struct params *p, int A) {
    double sum = 0;
    for (int i = 0; i < p->n; i++) {
        const struct param *t = &p->list[i];
        sum += elements(t) * (t->kind == PARAM_EXPERT ? (double)A / (double)t->dims[0] : 1);
    }
    return sum;
}

int params_replicated(int64_t rows, int size) {
    return rows < size;
}

void params_shard(int64_t rows, int rank, int size, int64_t *first, int64_t *last) {
    if (params_replicated(rows, size)) {
        *first = 0, *last = rows;
        return;
    }
    int64_t unit = rows % 128 == 0 && rows / 128 >= size ? 128 : 1, units = rows / unit;
    *first = units * rank / size * unit;
    *last = units * (rank + 1) / size * unit;
}

/* Calls `fits` on each word until it returns 1; the word then, the caller frees it, else NULL. */
static char *find_word(const char *words, int (*fits)(const char *word, const void *context),
                       const void *context) {
    for (const char *at = words; at && *at;) {
        size_t n = strcspn(at, " ");
        char *word = memory_format("%.*s", (int)n, at);
        if (n > 0 && fits(word, context)) return word;
        memory_free(word);
        at += n + strspn(at + n, " ");
    }
    return NULL;
}

static int fits_name(const char *word, const void *t) {
    return fnmatch(word, ((const struct param *)t)->name, 0) == 0;
}

static int fits_none(const char *word, const void *params) {
    const struct params *p = params;
    for (int i = 0; i < p->n; i++)
        if (fits_name(word, &p->list[i])) return 0;
    return 1;
}

int params_match(const struct param *t, const char *words) {
    char *word = find_word(words, fits_name, t);
    memory_free(word);
    return word != NULL;
}

char *params_unmatched(const struct params *p, const char *words) {
    return find_word(words, fits_none, p);
}

void params_init(const struct params *p, int i, uint64_t seed, size_t first, size_t n,
                 float *values) {
    const struct param *t = &p->list[i];
    uint64_t start = (uint64_t)t->first_row * (uint64_t)t->cols + first,
             stream = RANDOM_INIT + (uint64_t)i;
#pragma omp parallel for
    for (size_t k = 0; k < n; k++)
        values[k] = t->std == 0 ? 1 : t->std * random_normal(seed, stream, start + k);
}
