#include "config.h"
#include "checkpoint/weights.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "checkpoint/hf.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/hf_pieces.h"
#include "checkpoint/restore.h"
#include "grid/watchdog.h"
#include <assert.h>

struct weights {
    char *folder;
    struct params *params; /* of the whole model */
    float *bias;
    int64_t step;
    const struct config *config;
    const struct upcycling *upcycling;
    struct hf_folder *hf; /* NULL: a checkpoint, */
    struct shard_header header;
    struct params **tables; /* of the ep ranks that saved it, [header.ep_size] */
};

/* ---- a checkpoint ---- */

/* Rows of one piece from one shard. */
static char *read_shard(const struct weights *w, int d, int e, struct piece *p, size_t *covered) {
    char *name = shard_name(d, e), *path = file_join(w->folder, name),
         *problem = shard_read(NULL, path, p, 1, covered, NULL, 0);
    memory_free(path);
    memory_free(name);
    return problem;
}

static char *read_rows(const struct weights *w, int i, int64_t first_row, int64_t rows,
                       float *out) {
    const struct param *t = &w->params->list[i];
    struct piece p = {.param = t,
                      .kind = STATE_MASTER,
                      .first_row = first_row,
                      .rows = rows,
                      .data = out,
                      .n = (size_t)(rows * t->cols)};
    size_t covered = 0;
    char *problem = NULL;
    for (int e = 0; e < w->header.ep_size && !problem; e++)
        for (int d = 0; d < w->header.dp_size && !problem; d++) {
            int64_t there, n;
            if (state_rows(&w->tables[e]->list[i], w->header.dp_size, w->header.ep_size, d, e,
                           &there, &n) &&
                there < first_row + rows && first_row < there + n)
                problem = read_shard(w, d, e, &p, &covered);
        }
    if (!problem && covered != p.n)
        problem =
            memory_format("%s: %zu of %zu values of master/%s", w->folder, covered, p.n, t->name);
    return problem;
}

static void open_checkpoint(struct weights *w, const struct grid *g, const struct config *c,
                            const struct shape *s) {
    if (!checkpoint_is_sound(g, w->folder, c)) {
        if (g->rank == 0)
            die_user(EXIT_DATA, "%s: its weights cannot be used for this model", w->folder);
        user_agree();
    }
    size_t n = (size_t)s->L * (size_t)s->E;
    char *name = shard_name(0, 0), *path = file_join(w->folder, name), *problem;
    w->bias = memory_alloc_array(n, sizeof *w->bias);
    problem = shard_read_header(path, &w->header);
    if (!problem) problem = shard_read(NULL, path, NULL, 0, NULL, w->bias, n);
    if (problem) die_user(EXIT_DATA, "%s", problem); /* sound, and cannot be read: any rank */
    w->step = w->header.counters.step;
    w->tables = state_tables(s, c, w->header.dp_size, w->header.ep_size);
    memory_free(path);
    memory_free(name);
}

/* ---- a Hugging Face folder ---- */

/* [L, E], NULL where the folder has none. */
static float *read_bias(const char *folder, const struct shape *s) {
    char *path = file_join(folder, HF_BIAS_FILE);
    float *bias = NULL;
    if (file_exists(path)) {
        struct safetensors *f = safetensors_open(path);
        const struct safetensor *t = safetensors_find(f, HF_BIAS_NAME);
        if (!t || t->n_dims != 2 || t->dims[0] != s->L || t->dims[1] != s->E)
            die_user(EXIT_DATA, "%s: no tensor '%s' of %d x %d", path, HF_BIAS_NAME, s->L, s->E);
        bias = memory_alloc_array((size_t)t->n, sizeof *bias);
        safetensors_read(f, t, 0, t->n, bias);
        safetensors_close(f);
    }
    memory_free(path);
    return bias;
}

static void open_hf(struct weights *w, const struct shape *s) {
    w->hf = hf_folder_open(w->folder);
    hf_folder_check(w->hf, w->params, w->upcycling != NULL);
    w->bias = read_bias(w->folder, s);
    w->step = hf_step(w->folder);
}

/* What the dense model's values become. */
static void upcycle(const struct weights *w, int i, int64_t first, int64_t n, float *out) {
    const struct param *t = &w->params->list[i];
    double noise = w->upcycling->noise;
    if (file_has_suffix(t->name, ".mlp.gate.weight"))
        params_init(w->params, i, w->config->seed, (size_t)first, (size_t)n, out);
    else if (t->kind == PARAM_EXPERT && noise > 0)
        for (int64_t k = 0; k < n; k++)
            out[k] += (float)noise * random_normal(w->config->seed, RANDOM_UPCYCLE,
                                                   (uint64_t)i << 44 | (uint64_t)(first + k));
}

/* ---- */

struct weights *weights_open(const struct grid *g, const char *folder, const struct config *c,
                             const struct upcycling *u) {
    struct shape s = shape_of(c);
    struct weights *w = memory_alloc(sizeof *w);
    w->config = c, w->upcycling = u;
    w->folder = memory_string(folder);
    w->params = params_new_whole(&s, c);
    if (agree_int(g, hf_folder_exists(folder))) {
        if (g->rank == 0) open_hf(w, &s); /* it finds the user's mistakes for all */
        user_agree();
        if (g->rank != 0) open_hf(w, &s);
    } else
        open_checkpoint(w, g, c, &s);
    return w;
}

void weights_close(struct weights *w) {
    if (!w) return;
    if (w->tables) state_tables_free(w->tables, w->header.ep_size);
    hf_folder_close(w->hf);
    params_free(w->params);
    memory_free(w->bias);
    memory_free(w->folder);
    memory_free(w);
}

const struct params *weights_params(const struct weights *w) {
    return w->params;
}
const float *weights_bias(const struct weights *w) {
    return w->bias;
}
int64_t weights_step(const struct weights *w) {
    return w->step;
}

char *weights_read(struct weights *w, int i, int64_t first, int64_t n, float *out) {
    const struct param *t = &w->params->list[i];
    if (w->hf) {
        hf_folder_read(w->hf, t, first, n, out);
        if (w->upcycling) upcycle(w, i, first, n, out);
        return NULL;
    }
    assert(first % t->cols == 0 && n % t->cols == 0);
    return read_rows(w, i, first / t->cols, n / t->cols, out);
}

/* What this rank keeps of parameter i, some rows at a time through buffer[room]. */
static char *load(struct model *m, struct weights *w, int i, float *buffer, int64_t room) {
    const struct param *t = &m->params->list[i];
    const struct share *s = &m->shares[i];
    int64_t first = t->first_row * t->cols, most = room / t->cols * t->cols,
            end = (int64_t)(s->kept_first + s->kept_n);
    char *problem = NULL;
    for (int64_t at = (int64_t)s->kept_first, n; at < end && !problem; at += n) {
        n = end - at < most ? end - at : most;
        problem = weights_read(w, i, first + at, n, buffer);
        if (!problem) model_put(m, i, (size_t)at, (size_t)n, buffer);
        watchdog_progress();
    }
    return problem;
}

void weights_load(struct model *m, const char *folder) {
    enum { MOST = 1 << 22 }; /* elements, or a row */
    const struct grid *g = m->be->grid;
    char *path = checkpoint_share_name(g, folder), *problem = NULL;
    struct weights *w = weights_open(g, path, m->config, NULL);
    int64_t room = MOST;
    for (int i = 0; i < m->params->n; i++)
        if (m->params->list[i].cols > room) room = m->params->list[i].cols;
    float *buffer = memory_alloc_array((size_t)room, sizeof *buffer);
    for (int i = 0; i < m->params->n && !problem; i++) problem = load(m, w, i, buffer, room);
    if (problem) die_user(EXIT_DATA, "%s", problem); /* sound, and cannot be read: any rank */
    float *none = memory_alloc_array((size_t)m->s.L * (size_t)m->s.E, sizeof *none);
    model_set_bias(m, w->bias ? w->bias : none);
    memory_free(none);
    memory_free(buffer);
    weights_close(w);
    memory_free(path);
}
