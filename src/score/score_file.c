#include "config.h"
#include "score/score_file.h"
#include "base/memory.h"
#include "data/tokens.h"
#include <math.h>

enum { SCORED, LOG_LIKELIHOOD, BITS, BASES, N_DATASETS };

struct score_file {
    hid_t file, dataset[N_DATASETS]; /* BASES: 0 where they are not wanted */
    const struct corpus *corpus;
};

hid_t score_file_dataset(hid_t file, const char *name, hid_t type, int n_dims, const hsize_t *size,
                         const char *units, const char *long_name) {
    const double nan64 = NAN;
    hid_t space = H5Screate_simple(n_dims, size, NULL), how = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(how, H5D_CONTIGUOUS);
    if (H5Tget_class(type) == H5T_FLOAT) H5Pset_fill_value(how, H5T_NATIVE_DOUBLE, &nan64);
    hid_t d = H5Dcreate2(file, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT);
    h5_describe(d, units, long_name);
    H5Pclose(how);
    H5Sclose(space);
    return d;
}

void score_file_write(hid_t dataset, hid_t type, int64_t first, int64_t rows, const void *values) {
    hid_t space = H5Dget_space(dataset);
    hsize_t size[3] = {0, 0, 0}, start[3] = {(hsize_t)first, 0, 0};
    int n_dims = H5Sget_simple_extent_dims(space, size, NULL);
    size[0] = (hsize_t)rows;
    hid_t memory = H5Screate_simple(n_dims, size, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL);
    if (rows > 0) H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, values);
    H5Sclose(memory);
    H5Sclose(space);
}

hid_t score_file_whole(hid_t file, const char *name, hid_t type, int64_t n, const void *values,
                       const char *units, const char *long_name) {
    hsize_t size = (hsize_t)n;
    hid_t d = score_file_dataset(file, name, type, 1, &size, units, long_name);
    H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    return d;
}

hid_t score_file_texts(hid_t file, const char *name, char *const *texts, int64_t n,
                       const char *long_name) {
    hid_t type = h5_fixed_text(1);
    H5Tset_size(type, H5T_VARIABLE);
    hid_t d = score_file_whole(file, name, type, n, texts, "1", long_name);
    H5Tclose(type);
    return d;
}

hid_t score_file_create(const char *path, const char *format, int version, const struct request *o,
                        const struct corpus *c, const struct strands *s) {
    static const char *const kinds[] = {"forward", "reverse", "mean"};
    hid_t access = h5_file_access(), name = h5_fixed_text((size_t)c->name_bytes);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    h5_format(file, format, version);
    h5_string(file, "model", o->model);
    h5_string(file, "source", o->file);
    h5_string(file, "alphabet", tokens_alphabet_name((enum alphabet_kind)c->alphabet));
    h5_string(file, "strand", kinds[o->strand]);
    h5_int64(file, "window", s->content + 2 * s->wrapped);
    h5_int64(file, "stride", s->stride);
    h5_write_code(file);
    h5_write_run(file);
    H5Gclose(H5Gcreate2(file, "/records", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Dclose(score_file_whole(file, "/records/name", name, c->n_records, c->names, "1",
                              "name of the record"));
    H5Dclose(score_file_whole(file, "/records/offset", H5T_NATIVE_INT64, c->n_records, c->offset,
                              "1", "first base of the record among all bases"));
    H5Dclose(score_file_whole(file, "/records/length", H5T_NATIVE_INT64, c->n_records, c->length,
                              "1", "bases of the record"));
    H5Tclose(name);
    return file;
}

struct score_file *score_file_open(const char *path, const struct request *o,
                                   const struct corpus *c, const struct strands *s) {
    struct score_file *f = memory_alloc(sizeof *f);
    hsize_t n = (hsize_t)c->n_records, bases = (hsize_t)c->n_tokens;
    f->corpus = c;
    f->file = score_file_create(path, SCORES_FORMAT, SCORES_VERSION, o, c, s);
    f->dataset[SCORED] = score_file_dataset(f->file, "/records/scored", H5T_NATIVE_INT64, 1, &n,
                                            "1", "bases with a log-likelihood");
    f->dataset[LOG_LIKELIHOOD] = score_file_dataset(
        f->file, "/records/log_likelihood", H5T_NATIVE_DOUBLE, 1, &n, "nats", "sum over them");
    f->dataset[BITS] = score_file_dataset(f->file, "/records/bits_per_base", H5T_NATIVE_DOUBLE, 1,
                                          &n, "bits/base", "minus its mean; NaN without bases");
    if (o->per_base)
        f->dataset[BASES] =
            score_file_dataset(f->file, "/log_likelihood", H5T_NATIVE_FLOAT, 1, &bases, "nats",
                               "log-likelihood of each base; NaN: not scored");
    return f;
}

void score_file_record(struct score_file *f, int64_t i, const struct record_score *r,
                       const float *values) {
    score_file_write(f->dataset[SCORED], H5T_NATIVE_INT64, i, 1, &r->scored);
    score_file_write(f->dataset[LOG_LIKELIHOOD], H5T_NATIVE_DOUBLE, i, 1, &r->log_likelihood);
    score_file_write(f->dataset[BITS], H5T_NATIVE_DOUBLE, i, 1, &r->bits_per_base);
    if (f->dataset[BASES])
        score_file_write(f->dataset[BASES], H5T_NATIVE_FLOAT, f->corpus->offset[i], r->length,
                         values);
}

void score_file_close(struct score_file *f) {
    for (int k = 0; k < N_DATASETS; k++)
        if (f->dataset[k]) H5Dclose(f->dataset[k]);
    H5Fclose(f->file);
    memory_free(f);
}
