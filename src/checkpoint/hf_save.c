#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/hf.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/hf_pieces.h"
#include "checkpoint/safetensors.h"
#include "grid/watchdog.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The rank that sends a tensor: rank 0 for dense ones, for an expert the rank with dp_rank 0 that
 * has it; *element is its place in that rank's part of the parameter. */
static int owner_of(const struct model *m, const struct hf_part *part, size_t *element) {
    const struct param *t = &m->params->list[part->param];
    *element = (size_t)part->first % t->n;
    return (int)((size_t)part->first / t->n);
}

static void sync_folder(const char *path) {
    if (!file_sync(path)) die_io("%s: %s", path, strerror(errno));
}

/* Streams every tensor from its owner through rank 0 into fd. Collective over world. */
static void stream_tensors(struct model *m, const struct hf_list *list, int fd, const char *path) {
    enum { CHUNK = 1 << 22 }; /* elements */
    const struct grid *g = m->be->grid;
    float *buffer = memory_alloc_array(CHUNK, sizeof *buffer);
    for (int i = 0; i < list->n; i++) {
        size_t element;
        int owner = owner_of(m, &list->parts[i], &element);
        const real_t *whole = model_whole(m, list->parts[i].param);
        for (int64_t done = 0, n; done < list->tensors[i].n; done += n) {
            n = list->tensors[i].n - done < CHUNK ? list->tensors[i].n - done : CHUNK;
            watchdog_progress();
            if (g->rank == owner)
                m->be->download_real(m->be, buffer, real_at(m->be, whole, element + (size_t)done),
                                     (size_t)n);
            if (owner != 0 && g->rank == owner) MPI_Send(buffer, (int)n, MPI_FLOAT, 0, 0, g->world);
            if (g->rank != 0) continue;
            if (owner != 0)
                MPI_Recv(buffer, (int)n, MPI_FLOAT, owner, 0, g->world, MPI_STATUS_IGNORE);
            if (!file_write_all(fd, buffer, (size_t)n * sizeof *buffer))
                die_io("%s: %s", path, strerror(errno));
        }
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
        .name = memory_string(HF_BIAS_NAME), .dtype = "F32", .n_dims = 2, .dims = {m->s.L, m->s.E}};
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

void hf_save(struct model *m, const char *folder, int64_t step) {
    struct params *p = params_new_whole(&m->s, m->config);
    struct hf_list list = hf_list_new(p, "F32");
    int rank = m->be->grid->rank, fd = -1;
    char *temporary = memory_format("%s.tmp", folder),
         *path = file_join(temporary, "model.safetensors");
    if (rank == 0) {
        file_remove_folder(temporary);
        if (!file_make_folders(temporary)) die_io("%s: %s", temporary, strerror(errno));
        char *problem = hf_files_write(temporary, m->config, &m->s, "float32", step);
        if (problem) die_io("%s", problem);
        fd = safetensors_create(path, list.tensors, list.n);
        if (fd < 0) die_io("%s: %s", path, strerror(errno));
    }
    stream_tensors(m, &list, fd, path);
    if (rank == 0) {
        if (fsync(fd) != 0 || close(fd) != 0) die_io("%s: %s", path, strerror(errno));
        if (m->biased) save_bias(m, temporary);
        sync_folder(temporary);
        replace_folder(temporary, folder);
    }
    MPI_Barrier(m->be->grid->world);
    hf_list_free(&list);
    params_free(p);
    memory_free(temporary);
    memory_free(path);
}

int64_t hf_step(const char *folder) {
    char *path = file_join(folder, "config.json");
    json_t *root = json_load_file(path, 0, NULL), *step = json_object_get(root, HF_STEP_KEY);
    int64_t n = json_is_integer(step) ? json_integer_value(step) : -1;
    json_decref(root);
    memory_free(path);
    return n;
}
