/* A new metrics.h5: groups, series at full length, dimension scales. */
#include "config.h"
#include "metrics/layout.h"
#include "base/h5.h"
#include "base/memory.h"
#include "model/low_statistics.h"
#include <hdf5_hl.h>
#include <math.h>
#include <stdio.h>

static hid_t file_access(void) {
    /* No sieve buffer: a row goes to the file as the bytes it has, not as the 64 KiB around it, so
     * that holes stay holes and every row is in the kernel's hands when H5Dwrite returns. */
    hid_t access = h5_file_access();
    H5Pset_sieve_buf_size(access, 0);
    return access;
}

/* Contiguous and allocated at once. The expert counts, by far the largest, are never filled: holes
 * until written. */
static hid_t creation_of(enum series_kind kind) {
    const double nan64 = NAN;
    const int64_t minus_one = -1;
    hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(list, H5D_CONTIGUOUS);
    H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(list, H5D_FILL_TIME_ALLOC);
    H5Pset_obj_track_times(list, 0);
    if (kind == COUNT) H5Pset_fill_value(list, H5T_NATIVE_INT64, &minus_one);
    if (kind == REAL || kind == REAL32) H5Pset_fill_value(list, H5T_NATIVE_DOUBLE, &nan64);
    if (kind == TOKENS32) H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
    return list;
}

static void create_series(struct layout *l, hid_t group, enum series_id s) {
    hsize_t shape[MAX_RANK];
    hid_t type = series_type(series_table[s].kind, /*in_file=*/1),
          list = creation_of(series_table[s].kind);
    l->space[s] = H5Screate_simple(series_shape(&l->size, s, shape), shape, NULL);
    l->dataset[s] =
        H5Dcreate2(group, series_table[s].name, type, l->space[s], H5P_DEFAULT, list, H5P_DEFAULT);
    h5_describe(l->dataset[s], series_table[s].units, series_table[s].long_name);
    if (series_table[s].comment) h5_string(l->dataset[s], "comment", series_table[s].comment);
    if (series_table[s].kind == CHARACTER) h5_string(l->dataset[s], "_Encoding", "utf-8");
    H5Pclose(list);
    H5Tclose(type);
}

/* A dataset [n] that is written once. */
static hid_t create_fixed(hid_t group, const char *name, hid_t type, hsize_t n, const void *values,
                          const char *units, const char *long_name) {
    hid_t space = H5Screate_simple(1, &n, NULL);
    hid_t dataset = H5Dcreate2(group, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    h5_describe(dataset, units, long_name);
    H5Sclose(space);
    return dataset;
}

/* A dimension scale that counts 0 .. n-1. */
static hid_t create_index(hid_t group, const char *name, int64_t n, const char *long_name) {
    int64_t *index = memory_alloc_array((size_t)n, sizeof *index);
    for (int64_t i = 0; i < n; i++) index[i] = i;
    hid_t scale = create_fixed(group, name, H5T_STD_I64LE, (hsize_t)n, index, "1", long_name);
    H5DSset_scale(scale, name);
    memory_free(index);
    return scale;
}

static hid_t create_names(hid_t group, const char *name, const char *const *names, int n,
                          const char *long_name) {
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    hid_t scale = create_fixed(group, name, type, (hsize_t)n, names, "1", long_name);
    H5DSset_scale(scale, name);
    H5Tclose(type);
    return scale;
}

/* A dimension without coordinates, in netCDF's spelling: then its readers join the characters to
 * strings. */
static hid_t create_length(hid_t group, const char *name, int n) {
    char title[80];
    int8_t *zeros = memory_alloc((size_t)n);
    snprintf(title, sizeof title, "This is a netCDF dimension but not a netCDF variable.%10d", n);
    hid_t scale = create_fixed(group, name, H5T_STD_I8LE, (hsize_t)n, zeros, "1",
                               "place of a character, holds nothing");
    H5DSset_scale(scale, title);
    memory_free(zeros);
    return scale;
}

static const char *const statistic_names[N_STATISTICS] = {"minimum", "median", "maximum"};

const char *const layout_kinds[N_LOW_KINDS] = {
    [LOW_QKV_INPUT] = "qkv_input",       [LOW_QKV_WEIGHT] = "qkv_weight",
    [LOW_QKV_GRADIENT] = "qkv_gradient", [LOW_O_INPUT] = "o_input",
    [LOW_O_WEIGHT] = "o_weight",         [LOW_O_GRADIENT] = "o_gradient",
    [LOW_UP_INPUT] = "up_input",         [LOW_UP_WEIGHT] = "up_weight",
    [LOW_UP_GRADIENT] = "up_gradient",   [LOW_DOWN_INPUT] = "down_input",
    [LOW_DOWN_WEIGHT] = "down_weight",   [LOW_DOWN_GRADIENT] = "down_gradient"};

static hid_t create_scale(const struct layout *l, hid_t group, enum series_dimension d) {
    switch (d) {
    case LAYER:
        return create_index(group, "layer", l->size.n_layers, "layer, the first is 0");
    case EXPERT:
        return create_index(group, "expert", l->size.n_experts,
                            "expert, by its number in the whole grid");
    case STATISTIC:
        return create_names(group, "statistic", statistic_names, N_STATISTICS, "over the ranks");
    case KIND:
        return create_names(group, "kind", layout_kinds, N_LOW_KINDS,
                            "operand of a layer's products");
    case KIND_LENGTH:
        return create_length(group, "kind_length", METRICS_KIND_BYTES);
    case TEXT_LENGTH:
        return create_length(group, "text_length", METRICS_TEXT_BYTES);
    default:
        return H5I_INVALID_HID;
    }
}

static void create_markov(hid_t group, const double bits_per_base[MARKOV_ORDERS]) {
    hid_t order = create_index(group, "order", MARKOV_ORDERS, "order of a Markov chain");
    hid_t bits =
        create_fixed(group, "markov_bits_per_base", H5T_NATIVE_DOUBLE, MARKOV_ORDERS, bits_per_base,
                     "bits/base", "bits per held-out target of a Markov chain");
    h5_string(bits, "comment", "fitted on the training share; NaN: not computed");
    H5DSattach_scale(bits, order, 0);
    H5Dclose(bits);
    H5Dclose(order);
}

/* A group with its series, and its own scale for each of their dimensions: to attach a sibling's
 * scale breaks ncdump and xarray. */
static void create_group(struct layout *l, enum series_group g) {
    hid_t group = H5Gcreate2(l->file, series_group_names[g], H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t scales[N_DIMENSIONS];
    for (enum series_dimension d = NONE; d < N_DIMENSIONS; d++) scales[d] = H5I_INVALID_HID;
    enum series_id step = series_step_of(g);
    create_series(l, group, step);
    H5DSset_scale(l->dataset[step], "step");
    for (enum series_id s = 0; s < N_SERIES; s++) {
        if (series_table[s].group != g || s == step) continue;
        create_series(l, group, s);
        H5DSattach_scale(l->dataset[s], l->dataset[step], 0);
        for (unsigned i = 0; i < MAX_RANK - 1 && series_table[s].dimensions[i] != NONE; i++) {
            hid_t *scale = &scales[series_table[s].dimensions[i]];
            if (*scale < 0) *scale = create_scale(l, group, series_table[s].dimensions[i]);
            H5DSattach_scale(l->dataset[s], *scale, i + 1);
        }
    }
    for (enum series_dimension d = NONE; d < N_DIMENSIONS; d++)
        if (scales[d] >= 0) H5Dclose(scales[d]);
    H5Gclose(group);
}

void layout_create(struct layout *l, const char *path, const struct series_size *size,
                   const double markov_bits_per_base[MARKOV_ORDERS]) {
    hid_t access = file_access();
    l->size = *size;
    l->file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    h5_format(l->file, METRICS_FORMAT, METRICS_VERSION);
    h5_string(l->file, "Conventions", "CF-1.8");
    for (enum series_group g = 0; g < N_GROUPS; g++) create_group(l, g);
    hid_t validation = H5Gopen2(l->file, series_group_names[GROUP_VALIDATION], H5P_DEFAULT);
    create_markov(validation, markov_bits_per_base);
    H5Gclose(validation);
}
