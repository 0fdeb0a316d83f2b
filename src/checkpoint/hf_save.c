#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/hf.h"
#include "checkpoint/hf_pieces.h"
#include "checkpoint/safetensors.h"
#include "grid/watchdog.h"
#include "data/tokens.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A key of ours in config.json; others pass it over (config/hf.c does, too). */
static const char step_key[] = "regulon_step";

static char *config_json(const struct config *c, const struct shape *s, int64_t step) {
    json_t *root = json_pack(
        "{s:[s], s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:{s:f, "
        "s:s}, s:f, s:b}",
        "architectures", "MixtralForCausalLM", "model_type", "mixtral", "hidden_act", "silu",
        "dtype", "float32", "vocab_size", s->V, "hidden_size", s->D, "intermediate_size", s->F,
        "num_hidden_layers", s->L, "num_attention_heads", s->H, "num_key_value_heads", s->G,
        "head_dim", s->K, "num_local_experts", s->E, "num_experts_per_tok", s->A, "rms_norm_eps",
        c->model.rms_norm_eps, "rope_theta", s->theta, "rope_parameters", "rope_theta", s->theta,
        "rope_type", "default", "router_aux_loss_coef", c->model.router_aux_loss_coef,
        "tie_word_embeddings", s->tied);
    if (c->dataset.alphabet !=
        ALPHABET_BYTES) { /* of a tokeniser's tokens we do not know which they are */
        json_object_set_new(root, "eos_token_id", json_integer(TOKEN_EOS));
        json_object_set_new(root, "pad_token_id", json_integer(TOKEN_PAD));
        json_object_set_new(root, "bos_token_id", json_integer(TOKEN_BOS));
    }
    json_object_set_new(root, "sliding_window", s->window ? json_integer(s->window) : json_null());
    json_object_set_new(root, "initializer_range", json_real(c->model.initializer_range));
    json_object_set_new(root, "max_position_embeddings", json_integer(c->dataset.max_seq_length));
    json_object_set_new(root, "use_cache", json_true());
    json_object_set_new(root, step_key, json_integer(step));
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    json_decref(root);
    return text;
}

/* The tensors of the whole model with their owners, in the order of the file. */
struct plan {
    struct safetensor *list;
    int *owner;      /* rank that holds it */
    size_t *element; /* place in the owner's arena */
    int n, room;
    int rank; /* whose table is being listed */
};

static void plan_piece(const struct param *t, const struct hf_piece *p, void *context) {
    struct plan *plan = context;
    if (plan->n == plan->room) {
        plan->room = plan->room ? 2 * plan->room : 256;
        plan->list = memory_resize(plan->list, (size_t)plan->room * sizeof *plan->list);
        plan->owner = memory_resize(plan->owner, (size_t)plan->room * sizeof *plan->owner);
        plan->element = memory_resize(plan->element, (size_t)plan->room * sizeof *plan->element);
    }
    struct safetensor *s = &plan->list[plan->n];
    memset(s, 0, sizeof *s);
    s->name = memory_string(p->name);
    s->n_dims = p->n_dims;
    for (int d = 0; d < p->n_dims; d++) s->dims[d] = p->dims[d];
    plan->owner[plan->n] = plan->rank;
    plan->element[plan->n++] = t->offset + (size_t)p->at;
}

/* Dense tensors from rank 0, each ep rank's experts from the rank with dp_rank 0. Every rank makes
 * the same plan. */
static struct plan plan_of(const struct model *m) {
    struct plan plan = {0};
    for (int rank = 0; rank < m->be->grid->ep_size; rank++) {
        struct grid there = *m->be->grid;
        there.ep_rank = rank;
        struct params *p = params_new(&m->s, &there, m->config);
        plan.rank = rank;
        for (int i = rank == 0 ? 0 : p->n_dense; i < p->n; i++)
            hf_each_piece(&p->list[i], /*old=*/1, plan_piece, &plan);
        params_free(p);
    }
    return plan;
}

static void sync_folder(const char *path) {
    if (!file_sync(path)) die_io("%s: %s", path, strerror(errno));
}

/* Streams every tensor from its owner through rank 0 into fd. Collective over world. */
static void stream_tensors(const struct model *m, const struct plan *plan, int fd,
                           const char *path) {
    enum { CHUNK = 1 << 22 }; /* elements */
    const struct grid *g = m->be->grid;
    float *buffer = memory_alloc_array(CHUNK, sizeof *buffer);
    for (int i = 0; i < plan->n; i++)
        for (int64_t done = 0, n; done < plan->list[i].n; done += n) {
            n = plan->list[i].n - done < CHUNK ? plan->list[i].n - done : CHUNK;
            watchdog_progress();
            if (g->rank == plan->owner[i])
                m->be->download_real(m->be, buffer,
                                     real_at(m->be, m->weights, plan->element[i] + (size_t)done),
                                     (size_t)n);
            if (plan->owner[i] != 0 && g->rank == plan->owner[i])
                MPI_Send(buffer, (int)n, MPI_FLOAT, 0, 0, g->world);
            if (g->rank != 0) continue;
            if (plan->owner[i] != 0)
                MPI_Recv(buffer, (int)n, MPI_FLOAT, plan->owner[i], 0, g->world, MPI_STATUS_IGNORE);
            if (!file_write_all(fd, buffer, (size_t)n * sizeof *buffer))
                die_io("%s: %s", path, strerror(errno));
        }
    memory_free(buffer);
}

/* temporary takes the place of folder. */
static void replace_folder(const char *temporary, const char *folder) {
    char *older = memory_format("%s.old", folder), *parent = file_folder(folder);
    file_remove_folder(older);
    if (file_exists(folder) && rename(folder, older) != 0)
        die_io("%s: %s", folder, strerror(errno));
    if (rename(temporary, folder) != 0) die_io("%s: %s", folder, strerror(errno));
    sync_folder(parent);
    file_remove_folder(older);
    memory_free(older);
    memory_free(parent);
}

/* Rank 0: every rank has the same. */
static void save_bias(const struct model *m, const char *folder) {
    size_t n = (size_t)m->s.L * (size_t)m->s.E, bytes = n * sizeof *m->bias;
    struct safetensor t = {
        .name = memory_string(HF_BIAS_NAME), .n_dims = 2, .dims = {m->s.L, m->s.E}};
    char *path = file_join(folder, HF_BIAS_FILE);
    float *bias = memory_alloc_array(n, sizeof *bias);
    m->be->download(m->be, bias, m->bias, bytes);
    int fd = safetensors_create(path, &t, 1);
    if (fd < 0 || !file_write_all(fd, bias, bytes) || fsync(fd) != 0 || close(fd) != 0)
        die_io("%s: %s", path, strerror(errno));
    memory_free(bias);
    memory_free(path);
    memory_free(t.name);
}

void hf_save(const struct model *m, const char *folder, int64_t step) {
    struct plan plan = plan_of(m);
    int rank = m->be->grid->rank, fd = -1;
    char *temporary = memory_format("%s.tmp", folder),
         *path = file_join(temporary, "model.safetensors"),
         *json = file_join(temporary, "config.json");
    if (rank == 0) {
        file_remove_folder(temporary);
        if (!file_make_folders(temporary)) die_io("%s: %s", temporary, strerror(errno));
        char *text = config_json(m->config, &m->s, step);
        if (!file_write_atomic(json, text, strlen(text))) die_io("%s: %s", json, strerror(errno));
        free(text);
        fd = safetensors_create(path, plan.list, plan.n);
        if (fd < 0) die_io("%s: %s", path, strerror(errno));
    }
    for (int i = 0; i < plan.n; i++) { /* the other ranks fill in the sizes too */
        plan.list[i].n = 1;
        for (int d = 0; d < plan.list[i].n_dims; d++) plan.list[i].n *= plan.list[i].dims[d];
    }
    stream_tensors(m, &plan, fd, path);
    if (rank == 0) {
        if (fsync(fd) != 0 || close(fd) != 0) die_io("%s: %s", path, strerror(errno));
        if (m->config->router.bias_rate > 0) save_bias(m, temporary);
        sync_folder(temporary);
        replace_folder(temporary, folder);
    }
    MPI_Barrier(m->be->grid->world);
    for (int i = 0; i < plan.n; i++) memory_free(plan.list[i].name);
    memory_free(plan.list);
    memory_free(plan.owner);
    memory_free(plan.element);
    memory_free(temporary);
    memory_free(path);
    memory_free(json);
}

int64_t hf_step(const char *folder) {
    char *path = file_join(folder, "config.json");
    json_t *root = json_load_file(path, 0, NULL), *step = json_object_get(root, step_key);
    int64_t n = json_is_integer(step) ? json_integer_value(step) : -1;
    json_decref(root);
    memory_free(path);
    return n;
}
