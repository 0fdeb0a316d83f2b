#include "config.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/memory.h"
#include "checkpoint/shard.h"
#include <stdio.h>
#include <string.h>

enum { NEWEST_VERSION = 1, STAGE_BYTES = 16 << 20 };

char *shard_name(int dp_rank, int ep_rank) {
    return memory_format("shard_d%03d_e%03d.h5", dp_rank, ep_rank);
}

/* An open shard of ours, or -1 and *problem. Called within H5E_BEGIN_TRY. */
static hid_t open_shard(const char *path, char **problem) {
    hid_t access = h5_file_access(), file = H5Fopen(path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    if (file < 0) {
        *problem = memory_format("%s: missing, cut short or not HDF5", path);
        return -1;
    }
    char *format = h5_get_string(file, "format");
    int64_t version = 0;
    if (!format || strcmp(format, "regulon checkpoint shard") != 0)
        *problem = memory_format("%s: not a shard of a checkpoint", path);
    else if (!h5_get_int64(file, "format_version", &version) || version < 1 ||
             version > NEWEST_VERSION)
        *problem = memory_format("%s: format_version %lld, this program reads up to %d", path,
                                 (long long)version, NEWEST_VERSION);
    memory_free(format);
    if (!*problem) return file;
    H5Fclose(file);
    return -1;
}

int shard_read_description(hid_t file, struct shard_header *h) {
    int64_t dp, ep;
    char *id = h5_get_string(file, "run_id");
    int ok = id && h5_get_int64(file, "dp_size", &dp) && h5_get_int64(file, "ep_size", &ep) &&
             h5_get_int64(file, "micro_batches", &h->micro_batches) &&
             h5_get_int64(file, "step", &h->counters.step) &&
             h5_get_int64(file, "updates", &h->counters.updates) &&
             h5_get_int64(file, "tokens", &h->counters.tokens);
    if (ok) {
        snprintf(h->run_id, sizeof h->run_id, "%s", id);
        h->dp_size = (int)dp, h->ep_size = (int)ep;
    }
    memory_free(id);
    return ok;
}

static int read_header(hid_t file, struct shard_header *h) {
    int64_t d, e;
    int ok = shard_read_description(file, h) && h5_get_int64(file, "dp_rank", &d) &&
             h5_get_int64(file, "ep_rank", &e) &&
             h5_get_int64(file, "bad_steps", &h->counters.bad_steps);
    if (ok) h->dp_rank = (int)d, h->ep_rank = (int)e;
    return ok;
}

char *shard_read_header(const char *path, struct shard_header *h) {
    char *problem = NULL;
    H5E_BEGIN_TRY {
        hid_t file = open_shard(path, &problem);
        if (file >= 0) {
            if (!read_header(file, h)) problem = memory_format("%s: an attribute is missing", path);
            H5Fclose(file);
        }
    }
    H5E_END_TRY
    return problem;
}

/* count rows of dataset d from row `first`, through host memory, to `data`. */
static int read_stretch(struct backend *be, hid_t d, hid_t space, int64_t first, int64_t count,
                        int64_t cols, float *data) {
    int64_t most = STAGE_BYTES / (cols * (int64_t)sizeof(float)) + 1;
    float *stage =
        memory_alloc_array((size_t)((count < most ? count : most) * cols), sizeof *stage);
    int ok = 1;
    while (count > 0 && ok) {
        int64_t n = count < most ? count : most;
        hsize_t start[2] = {(hsize_t)first, 0}, size[2] = {(hsize_t)n, (hsize_t)cols};
        hid_t memory = H5Screate_simple(2, size, NULL);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL);
        ok = H5Dread(d, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, stage) >= 0;
        H5Sclose(memory);
        size_t bytes = (size_t)(n * cols) * sizeof *data;
        if (ok && be)
            be->upload(be, data, stage, bytes);
        else if (ok)
            memcpy(data, stage, bytes);
        first += n, count -= n, data += n * cols;
    }
    memory_free(stage);
    return ok;
}

/* Rows that dataset d has of the piece, into its place. 1, or 0 if they cannot be read. */
static int read_rows(struct backend *be, hid_t d, struct piece *p, size_t *covered) {
    hid_t space = H5Dget_space(d);
    hsize_t dims[2] = {0, 0};
    int64_t first;
    int ok = H5Sget_simple_extent_ndims(space) == 2 &&
             H5Sget_simple_extent_dims(space, dims, NULL) == 2 &&
             (int64_t)dims[1] == p->param->cols && h5_get_int64(d, "first_row", &first);
    if (ok) {
        int64_t last = first + (int64_t)dims[0], from = first > p->first_row ? first : p->first_row,
                to = last < p->first_row + p->rows ? last : p->first_row + p->rows;
        if (from < to) {
            ok = read_stretch(be, d, space, from - first, to - from, p->param->cols,
                              p->data + (from - p->first_row) * p->param->cols);
            *covered += (size_t)((to - from) * p->param->cols);
        }
    }
    H5Sclose(space);
    return ok;
}

static int read_bias(hid_t file, float *bias, size_t n) {
    if (!bias || H5Lexists(file, "router_bias", H5P_DEFAULT) <= 0) return 1;
    hid_t d = H5Dopen2(file, "router_bias", H5P_DEFAULT), space = H5Dget_space(d);
    int ok = H5Sget_simple_extent_npoints(space) == (hssize_t)n &&
             H5Dread(d, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, bias) >= 0;
    H5Sclose(space);
    H5Dclose(d);
    return ok;
}

char *shard_read(struct backend *be, const char *path, struct piece *pieces, int n, size_t *covered,
                 float *bias, size_t n_bias) {
    char *problem = NULL;
    H5E_BEGIN_TRY {
        hid_t file = open_shard(path, &problem);
        for (int i = 0; i < n && file >= 0 && !problem; i++) {
            char *name = memory_format("/%s/%s", state_name(pieces[i].kind), pieces[i].param->name);
            hid_t d =
                H5Lexists(file, name, H5P_DEFAULT) > 0 ? H5Dopen2(file, name, H5P_DEFAULT) : -1;
            if (d >= 0 && !read_rows(be, d, &pieces[i], &covered[i]))
                problem = memory_format("%s: %s cannot be read or has another shape", path, name);
            if (d >= 0) H5Dclose(d);
            memory_free(name);
        }
        if (file >= 0 && !problem && !read_bias(file, bias, n_bias))
            problem = memory_format("%s: router_bias cannot be read or has another shape", path);
        if (file >= 0) H5Fclose(file);
    }
    H5E_END_TRY
    return problem;
}
