#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/hf.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/hf_pieces.h"

float *hf_read_bias(const char *folder, const struct shape *s) {
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

static void load_bias(struct model *m, const char *folder) {
    size_t bytes = (size_t)m->s.L * (size_t)m->s.E * sizeof *m->bias;
    float *bias = hf_read_bias(folder, &m->s);
    if (bias)
        m->be->upload(m->be, m->bias, bias, bytes);
    else
        m->be->zero(m->be, m->bias, bytes);
    memory_free(bias);
}

static void load(struct model *m, const char *folder) {
    const struct params *p = m->params;
    struct params *all = params_new_whole(&m->s, m->config);
    struct hf_folder *f = hf_folder_open(folder);
    hf_folder_check(f, all);
    float *weights = memory_alloc_array(m->sizes.weights, sizeof *weights);
    for (int i = 0; i < p->n; i++) {
        const struct share *s = &m->shares[i];
        hf_folder_read(f, &p->list[i], (int64_t)s->kept_first, (int64_t)s->kept_n,
                       weights + s->weight);
    }
    model_put(m, weights);
    if (m->config->router.bias_rate > 0) load_bias(m, folder);
    memory_free(weights);
    hf_folder_close(f);
    params_free(all);
}

/* Rank 0 first: it finds the user's mistakes for all. */
void hf_load(struct model *m, const char *folder) {
    if (log_rank() == 0) load(m, folder);
    user_agree();
    if (log_rank() != 0) load(m, folder);
}
