#include "config.h"
#include "checkpoint/contents.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/memory.h"
#include "base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char index_name[] = "index.h5";

/* Does folder/name exist? */
static int has(const char *folder, const char *name) {
    char *path = file_join(folder, name);
    int there = file_exists(path);
    memory_free(path);
    return there;
}

static int is_shard_name(const char *name) {
    int d, e, used = 0;
    return sscanf(name, "shard_d%d_e%d.h5%n", &d, &e, &used) == 2 && used > 0 && name[used] == 0;
}

char *contents_folder(const char *path) {
    if (has(path, "checksums") || has(path, index_name) || has(path, "shard_d000_e000.h5"))
        return memory_string(path);
    const char *name = file_basename(path);
    if (!file_exists(path) || (strcmp(name, index_name) != 0 && !is_shard_name(name))) return NULL;
    return file_folder(path);
}

char *contents_files(struct contents *c, const char *folder) {
    memset(c, 0, sizeof *c);
    c->folder = memory_string(folder);
    return checksums_read(folder, &c->files, &c->n_files);
}

void contents_close(struct contents *c) {
    memory_free(c->tensors);
    memory_free(c->files);
    memory_free(c->folder);
}

static const struct checksum *find_file(const struct contents *c, const char *name) {
    for (int i = 0; i < c->n_files; i++)
        if (strcmp(c->files[i].name, name) == 0) return &c->files[i];
    return NULL;
}

/* ---- index.h5 ---- */

static int read_size(hid_t config, const char *key, int64_t *value) {
    char *text = h5_get_string(config, key);
    int ok = text && text_to_int(text, value);
    memory_free(text);
    return ok;
}

/* The root's attributes, and the shape of the router's bias from the deck. */
static int read_header(struct contents *c, hid_t file) {
    hid_t config = H5Gopen2(file, "/config", H5P_DEFAULT);
    int ok = shard_read_description(file, &c->header) &&
             read_size(config, "model.num_hidden_layers", &c->bias_shape[0]) &&
             read_size(config, "model.num_local_experts", &c->bias_shape[1]);
    H5Gclose(config);
    return ok;
}

/* Name and shape of one tensor of the group; 0 when it is none of ours. */
static int read_tensor(hid_t group, hsize_t i, struct param *t) {
    hsize_t dims[3] = {0, 0, 0};
    memset(t, 0, sizeof *t);
    ssize_t n = H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, t->name,
                                   sizeof t->name, H5P_DEFAULT);
    if (n < 0 || (size_t)n >= sizeof t->name) return 0;
    hid_t d = H5Dopen2(group, t->name, H5P_DEFAULT), space = H5Dget_space(d);
    int n_dims = H5Sget_simple_extent_ndims(space), ok = n_dims >= 1 && n_dims <= 3;
    if (ok) H5Sget_simple_extent_dims(space, dims, NULL);
    H5Sclose(space);
    H5Dclose(d);
    if (!ok) return 0;
    t->n_dims = n_dims, t->rows = 1, t->cols = (int64_t)dims[n_dims - 1];
    for (int k = 0; k < n_dims; k++) t->dims[k] = (int64_t)dims[k];
    for (int k = 0; k + 1 < n_dims; k++) t->rows *= t->dims[k];
    t->n = (size_t)t->rows * (size_t)t->cols;
    return t->n > 0;
}

static int same_shape(const struct param *a, const struct param *b) {
    return a->n_dims == b->n_dims && memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

/* In the order of names, where numbers count as numbers. */
static int by_name(const void *a, const void *b) {
    const struct contents_tensor *x = a, *y = b;
    return strverscmp(x->param.name, y->param.name);
}

/* Appends the tensors of one kind. */
static char *read_kind(struct contents *c, hid_t file, enum state_kind kind) {
    if (H5Lexists(file, state_name(kind), H5P_DEFAULT) <= 0)
        return memory_format("%s/%s: no group /%s", c->folder, index_name, state_name(kind));
    hid_t group = H5Gopen2(file, state_name(kind), H5P_DEFAULT);
    H5G_info_t info;
    H5Gget_info(group, &info);
    c->tensors =
        memory_resize(c->tensors, ((size_t)c->n_tensors + info.nlinks + 1) * sizeof *c->tensors);
    char *problem = NULL;
    for (hsize_t i = 0; i < info.nlinks && !problem; i++) {
        struct contents_tensor *t = &c->tensors[c->n_tensors++];
        t->kinds = 1u << kind;
        if (!read_tensor(group, i, &t->param))
            problem = memory_format("%s/%s: /%s/%s is no tensor", c->folder, index_name,
                                    state_name(kind), t->param.name);
    }
    H5Gclose(group);
    return problem;
}

/* Sorts the tensors and makes one of those with the same name and shape. */
static void join_kinds(struct contents *c) {
    int n = 0;
    qsort(c->tensors, (size_t)c->n_tensors, sizeof *c->tensors, by_name);
    for (int i = 0; i < c->n_tensors; i++) {
        struct contents_tensor *t = &c->tensors[i], *last = n > 0 ? &c->tensors[n - 1] : NULL;
        if (last && strcmp(last->param.name, t->param.name) == 0 &&
            same_shape(&last->param, &t->param))
            last->kinds |= t->kinds;
        else
            c->tensors[n++] = *t;
    }
    c->n_tensors = n;
}

static char *read_index(struct contents *c, const char *path) {
    char *problem = NULL;
    hid_t file = h5_open_user(path);
    h5_check_format(file, path, "regulon checkpoint", 1);
    if (!read_header(c, file)) problem = memory_format("%s: an attribute is missing", path);
    for (enum state_kind k = 0; k < N_STATES && !problem; k++) problem = read_kind(c, file, k);
    H5Fclose(file);
    if (!problem) join_kinds(c);
    return problem;
}

/* Are all shards of the grid listed? */
static char *find_shards(const struct contents *c) {
    char *problem = NULL;
    for (int d = 0; d < c->header.dp_size && !problem; d++)
        for (int e = 0; e < c->header.ep_size && !problem; e++) {
            char *name = shard_name(d, e);
            if (!find_file(c, name))
                problem = memory_format("%s/checksums: %s is not listed, a shard of dp %d x ep %d",
                                        c->folder, name, c->header.dp_size, c->header.ep_size);
            memory_free(name);
        }
    return problem;
}

char *contents_tensors(struct contents *c) {
    const struct checksum *index = find_file(c, index_name);
    if (!index) return memory_format("%s/checksums: %s is not listed", c->folder, index_name);
    char *problem = checksums_verify(c->folder, index), *path = file_join(c->folder, index_name);
    if (!problem) problem = read_index(c, path);
    if (!problem) problem = find_shards(c);
    memory_free(path);
    return problem;
}
