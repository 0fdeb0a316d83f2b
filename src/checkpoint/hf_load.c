#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/hf.h"
#include "checkpoint/hf_pieces.h"
#include "checkpoint/safetensors.h"

struct loading {
    struct safetensors *f;
    float *to; /* the parameter's local part */
};

static void load_piece(const struct param *t, const struct hf_piece *p, void *context) {
    struct loading *load = context;
    (void)t;
    const struct safetensor *s = safetensors_find(load->f, p->name);
    if (!s) die_user(EXIT_DATA, "%s: tensor '%s' is missing", load->f->path, p->name);
    int same = s->n_dims == p->n_dims;
    for (int d = 0; same && d < p->n_dims; d++) same = s->dims[d] == p->dims[d];
    if (!same)
        die_user(
            EXIT_DATA,
            "%s: tensor '%s' has %lld elements in %d dimensions, the model's has another shape",
            load->f->path, p->name, (long long)s->n, s->n_dims);
    safetensors_read(load->f, s, p->first, p->n, load->to + p->at);
}

/* What the whole model has in this folder's naming: elements of all tensors, to find left-over
 * ones. */
static int64_t elements_of(const struct params *p) {
    int64_t n = 0;
    for (int i = 0; i < p->n; i++) {
        int64_t one = 1;
        for (int d = 0; d < p->list[i].n_dims; d++) one *= p->list[i].dims[d];
        n += one;
    }
    return n;
}

static void load_bias(struct model *m, const char *folder) {
    size_t n = (size_t)m->s.L * (size_t)m->s.E, bytes = n * sizeof *m->bias;
    char *path = file_join(folder, HF_BIAS_FILE);
    m->be->zero(m->be, m->bias, bytes);
    if (file_exists(path)) {
        struct safetensors *f = safetensors_open(path);
        const struct safetensor *t = safetensors_find(f, HF_BIAS_NAME);
        if (!t || t->n_dims != 2 || t->dims[0] != m->s.L || t->dims[1] != m->s.E)
            die_user(EXIT_DATA, "%s: no tensor '%s' of %d x %d", path, HF_BIAS_NAME, m->s.L,
                     m->s.E);
        float *bias = memory_alloc_array(n, sizeof *bias);
        safetensors_read(f, t, 0, t->n, bias);
        m->be->upload(m->be, m->bias, bias, bytes);
        memory_free(bias);
        safetensors_close(f);
    }
    memory_free(path);
}

static void load(struct model *m, const char *folder) {
    const struct params *p = m->params;
    char *path = file_join(folder, "model.safetensors");
    struct safetensors *f = safetensors_open(path);
    int old = safetensors_find(f, "model.layers.0.block_sparse_moe.gate.weight") != NULL;
    float *all = memory_alloc_array(p->size, sizeof *all);
    for (int i = 0; i < p->n; i++) {
        struct loading load = {.f = f, .to = all + p->list[i].offset};
        hf_each_piece(&p->list[i], old, load_piece, &load);
    }
    int64_t seen = 0;
    for (int i = 0; i < f->n; i++) seen += f->list[i].n;
    if (seen != elements_of(p))
        die_user(EXIT_DATA,
                 "%s: holds %lld values, the model %lld: there are tensors the model does not have",
                 path, (long long)seen, (long long)elements_of(p));
    model_put(m, all);
    if (m->config->router.bias_rate > 0) load_bias(m, folder);
    memory_free(all);
    safetensors_close(f);
    memory_free(path);
}

/* Rank 0 first: it finds the user's mistakes for all. */
void hf_load(struct model *m, const char *folder) {
    if (log_rank() == 0) load(m, folder);
    user_agree();
    if (log_rank() != 0) load(m, folder);
}
