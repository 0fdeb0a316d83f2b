#include "config.h"
#include "metrics/layout.h"
#include "base/die.h"
#include "base/h5.h"
#include "base/memory.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

static int is_absent(hid_t file, enum series_id s) {
    char where[64];
    const char *group = series_group_names[series_table[s].group];
    snprintf(where, sizeof where, "%s/%s", group, series_table[s].name);
    return H5Lexists(file, group, H5P_DEFAULT) == 0 || H5Lexists(file, where, H5P_DEFAULT) == 0;
}

/* Opens /group/name and sees that it has `rank` dimensions, whose lengths go to shape. */
static hid_t open_dataset(hid_t file, const char *path, enum series_group g, const char *name,
                          int rank, hsize_t shape[MAX_RANK]) {
    hid_t dataset;
    char where[64];
    snprintf(where, sizeof where, "/%s/%s", series_group_names[g], name);
    H5E_BEGIN_TRY {
        dataset = H5Dopen2(file, where, H5P_DEFAULT);
    }
    H5E_END_TRY
    if (dataset < 0) die_user(EXIT_DATA, "%s: no dataset %s", path, where);
    hid_t space = H5Dget_space(dataset);
    int found = H5Sget_simple_extent_ndims(space);
    if (found != rank)
        die_user(EXIT_DATA, "%s: %s has %d dimensions, not %d", path, where, found, rank);
    H5Sget_simple_extent_dims(space, shape, NULL);
    H5Sclose(space);
    return dataset;
}

/* The lengths that the file has: rows from the groups' steps, layers and experts from the expert
 * counts. */
static void read_size(struct layout *l, const char *path) {
    hsize_t shape[MAX_RANK];
    for (enum series_group g = 0; g < N_GROUPS; g++) {
        enum series_id step = series_step_of(g);
        l->size.rows[g] = 0;
        if (series_table[step].added && is_absent(l->file, step)) continue;
        H5Dclose(open_dataset(l->file, path, g, "step", 1, shape));
        l->size.rows[g] = (int64_t)shape[0];
    }
    H5Dclose(open_dataset(l->file, path, GROUP_EXPERTS, "tokens", 3, shape));
    l->size.n_layers = (int64_t)shape[1], l->size.n_experts = (int64_t)shape[2];
    H5Dclose(open_dataset(l->file, path, GROUP_VALIDATION, "markov_bits_per_base", 1, shape));
    if (shape[0] != MARKOV_ORDERS)
        die_user(EXIT_DATA, "%s: /validation/markov_bits_per_base has %llu orders, not %d", path,
                 (unsigned long long)shape[0], MARKOV_ORDERS);
}

void layout_open(struct layout *l, const char *path) {
    l->file = h5_open_user(path);
    h5_check_format(l->file, path, METRICS_FORMAT, METRICS_VERSION);
    read_size(l, path);
    for (enum series_id s = 0; s < N_SERIES; s++) {
        hsize_t want[MAX_RANK] = {0}, found[MAX_RANK] = {0};
        int rank = series_shape(&l->size, s, want);
        l->dataset[s] = l->space[s] = H5I_INVALID_HID;
        if (series_table[s].added && is_absent(l->file, s)) continue;
        l->dataset[s] =
            open_dataset(l->file, path, series_table[s].group, series_table[s].name, rank, found);
        l->space[s] = H5Dget_space(l->dataset[s]);
        if (memcmp(want, found, sizeof want) != 0)
            die_user(EXIT_DATA, "%s: /%s/%s has another shape than its group", path,
                     series_group_names[series_table[s].group], series_table[s].name);
    }
}

void layout_close(struct layout *l) {
    for (enum series_id s = 0; s < N_SERIES; s++) {
        if (l->dataset[s] < 0) continue;
        H5Sclose(l->space[s]);
        H5Dclose(l->dataset[s]);
    }
    H5Fclose(l->file);
}

/* Selects rows row .. row+n-1 in l->space[s]; returns a memory space of as many values. */
static hid_t select_rows(struct layout *l, enum series_id s, int64_t row, int64_t n) {
    hsize_t start[MAX_RANK] = {(hsize_t)row}, count[MAX_RANK];
    int rank = series_shape(&l->size, s, count);
    assert(row >= 0 && n >= 0 && row + n <= l->size.rows[series_table[s].group]);
    count[0] = (hsize_t)n;
    H5Sselect_hyperslab(l->space[s], H5S_SELECT_SET, start, NULL, count, NULL);
    return H5Screate_simple(rank, count, NULL);
}

void layout_write(struct layout *l, enum series_id s, int64_t row, int64_t n, const void *values) {
    if (n == 0) return;
    hid_t memory = select_rows(l, s, row, n),
          type = series_type(series_table[s].kind, /*in_file=*/0);
    H5Dwrite(l->dataset[s], type, memory, l->space[s], H5P_DEFAULT, values);
    H5Tclose(type);
    H5Sclose(memory);
}

void layout_read(struct layout *l, enum series_id s, int64_t row, int64_t n, void *values) {
    if (n == 0) return;
    hid_t memory = select_rows(l, s, row, n),
          type = series_type(series_table[s].kind, /*in_file=*/0);
    H5Dread(l->dataset[s], type, memory, l->space[s], H5P_DEFAULT, values);
    H5Tclose(type);
    H5Sclose(memory);
}

size_t layout_row_bytes(const struct layout *l, enum series_id s) {
    hsize_t shape[MAX_RANK];
    hid_t type = series_type(series_table[s].kind, /*in_file=*/0);
    size_t bytes = H5Tget_size(type);
    H5Tclose(type);
    for (int i = series_shape(&l->size, s, shape) - 1; i > 0; i--) bytes *= (size_t)shape[i];
    return bytes;
}

int64_t layout_rows(struct layout *l, enum series_group g, int64_t last_step) {
    int64_t n = l->size.rows[g], rows = 0;
    if (n == 0) return 0; /* of a group that was added later */
    int64_t *steps = memory_alloc_array((size_t)n, sizeof *steps);
    layout_read(l, series_step_of(g), 0, n, steps);
    while (rows < n && steps[rows] >= 0 && steps[rows] <= last_step) rows++;
    memory_free(steps);
    return rows;
}

void layout_read_markov(struct layout *l, double bits_per_base[MARKOV_ORDERS]) {
    hid_t dataset = H5Dopen2(l->file, "/validation/markov_bits_per_base", H5P_DEFAULT);
    H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, bits_per_base);
    H5Dclose(dataset);
}
