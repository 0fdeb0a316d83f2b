#include "config.h"
#include "checkpoint/index.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/memory.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One stretch of rows of a tensor as a shard holds it. */
struct stretch {
    char *file;
    int64_t first, rows; /* global */
};

/* The shards' stretches of tensor i into list[ranks]; returns how many. The caller frees their
 * names. */
static int stretches_of(const struct shard_header *h, struct params *const *tables, int i,
                        struct stretch *list) {
    int n = 0;
    for (int e = 0; e < h->ep_size; e++)
        for (int d = 0; d < h->dp_size; d++) {
            struct stretch *one = &list[n];
            if (!state_rows(&tables[e]->list[i], h->dp_size, h->ep_size, d, e, &one->first,
                            &one->rows))
                continue;
            one->file = shard_name(d, e);
            n++;
        }
    return n;
}

/* Selects rows [first, first + rows) of the matrix [all dimensions but the last, last] in a space
 * of up to 3 dimensions: of 3, the end of one slice, whole slices, the beginning of another. */
static void select_rows(hid_t space, const struct param *t, int64_t first, int64_t rows) {
    if (t->n_dims < 3) {
        hsize_t start[2] = {(hsize_t)first, 0}, count[2] = {(hsize_t)rows, (hsize_t)t->cols};
        if (t->n_dims == 1) start[0] = 0, count[0] = (hsize_t)t->cols;
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        return;
    }
    int64_t slice = t->dims[1];
    for (int64_t at = first; at < first + rows;) {
        int64_t in = at % slice, n = slice - in;
        if (in == 0 && first + rows - at >= slice) n = (first + rows - at) / slice * slice;
        if (n > first + rows - at) n = first + rows - at;
        hsize_t start[3] = {(hsize_t)(at / slice), (hsize_t)in, 0},
                count[3] = {(hsize_t)(n > slice ? n / slice : 1), (hsize_t)(n > slice ? slice : n),
                            (hsize_t)t->cols};
        H5Sselect_hyperslab(space, at == first ? H5S_SELECT_SET : H5S_SELECT_OR, start, NULL, count,
                            NULL);
        at += n;
    }
}

static int write_tensor(hid_t group, enum state_kind kind, const struct param *t,
                        const struct stretch *list, int n) {
    hsize_t dims[3] = {(hsize_t)t->dims[0], (hsize_t)t->dims[1], (hsize_t)t->dims[2]};
    hid_t how = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(t->n_dims, dims, NULL);
    float nan = NAN;
    H5Pset_fill_value(how, H5T_NATIVE_FLOAT, &nan);
    char *source = memory_format("/%s/%s", state_name(kind), t->name);
    int ok = 1;
    for (int i = 0; i < n && ok; i++) {
        hsize_t size[2] = {(hsize_t)list[i].rows, (hsize_t)t->cols};
        hid_t from = H5Screate_simple(2, size, NULL), to = H5Scopy(space);
        select_rows(to, t, list[i].first, list[i].rows);
        ok = H5Pset_virtual(how, to, list[i].file, source, from) >= 0;
        H5Sclose(from);
        H5Sclose(to);
    }
    hid_t d =
        ok ? H5Dcreate2(group, t->name, H5T_IEEE_F32LE, space, H5P_DEFAULT, how, H5P_DEFAULT) : -1;
    ok = d >= 0;
    if (ok) h5_describe(d, "1", state_name(kind)), H5Dclose(d);
    memory_free(source);
    H5Sclose(space);
    H5Pclose(how);
    return ok;
}

static int write_all(hid_t file, const struct shard_header *h, const struct config *c,
                     const struct shape *s) {
    struct params *p = params_new_whole(s, c);
    int ok = 1;
    h5_format(file, "regulon checkpoint", 1);
    shard_describe(file, h, c);
    hid_t groups[N_STATES];
    for (enum state_kind k = 0; k < N_STATES; k++)
        groups[k] = H5Gcreate2(file, state_name(k), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    struct params **tables = state_tables(s, c, h->dp_size, h->ep_size);
    struct stretch *list = memory_alloc_array((size_t)(h->dp_size * h->ep_size), sizeof *list);
    for (int i = 0; i < p->n && ok; i++) {
        int n = stretches_of(h, tables, i, list);
        for (enum state_kind k = 0; k < N_STATES && ok; k++)
            ok = write_tensor(groups[k], k, &p->list[i], list, n);
        for (int j = 0; j < n; j++) memory_free(list[j].file);
    }
    memory_free(list);
    state_tables_free(tables, h->ep_size);
    for (enum state_kind k = 0; k < N_STATES; k++) ok = H5Gclose(groups[k]) >= 0 && ok;
    params_free(p);
    return ok;
}

char *index_write(const char *folder, const struct shard_header *h, const struct config *c,
                  const struct shape *s) {
    char *path = file_join(folder, "index.h5"), *problem = NULL;
    hid_t access = h5_file_access();
    H5E_BEGIN_TRY {
        errno = 0;
        hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
        int ok = file >= 0 && write_all(file, h, c, s);
        if (file >= 0) ok = H5Fclose(file) >= 0 && ok;
        if (!ok) problem = memory_format("%s: %s", path, strerror(errno ? errno : EIO));
    }
    H5E_END_TRY
    H5Pclose(access);
    if (!problem && !file_sync(path)) problem = memory_format("%s: %s", path, strerror(errno));
    memory_free(path);
    return problem;
}
