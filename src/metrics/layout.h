/* How metrics.h5 lies on disk: one table of its series, and the file handle through which rows go
 * in and out.
 *
 * Every series is a contiguous dataset made at its full length when the file is created; afterwards
 * rows are written in place and no byte of metadata changes, which is why the file can be read at
 * any moment. Only the metrics layer includes this. */
#ifndef REGULON_METRICS_LAYOUT_H
#define REGULON_METRICS_LAYOUT_H
#include "data/markov.h"
#include "metrics/series.h"
#include <hdf5.h>
#include <stdint.h>

#define METRICS_FORMAT "regulon metrics"
enum { METRICS_VERSION = 1 };

struct layout {
    hid_t file;
    struct series_size size;
    hid_t dataset[N_SERIES];
    hid_t space[N_SERIES]; /* of the whole dataset; its selection is scratch */
};

/* The coordinates along KIND, [N_LOW_KINDS]. */
extern const char *const layout_kinds[];

/* Creates `path`, or replaces it, with every row unwritten (NaN, -1, 0 or "") and the groups' fixed
 * datasets. */
void layout_create(struct layout *l, const char *path, const struct series_size *size,
                   const double markov_bits_per_base[MARKOV_ORDERS]);

/* Opens an existing file to read; `size` is what it has. die_user (65) if it is not ours or lacks
 * something that was not added later; such a series has no dataset (below 0). */
void layout_open(struct layout *l, const char *path);
void layout_close(struct layout *l);

/* n rows from `row` on, in memory as in the file: int64_t, double, float, uint32_t or char, [n,
 * ...]. */
void layout_write(struct layout *l, enum series_id s, int64_t row, int64_t n, const void *values);
void layout_read(struct layout *l, enum series_id s, int64_t row, int64_t n, void *values);
size_t layout_row_bytes(const struct layout *l, enum series_id s);

/* Whole rows of a group with step <= last_step: they come first, in order. */
int64_t layout_rows(struct layout *l, enum series_group g, int64_t last_step);

/* The fixed dataset /validation/markov_bits_per_base[order]. */
void layout_read_markov(struct layout *l, double bits_per_base[MARKOV_ORDERS]);
#endif
