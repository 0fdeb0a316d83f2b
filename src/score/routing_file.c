/* Bases lie one after the other, segment by segment; nothing but the segments is held in memory. */
#include "config.h"
#include "score/routing_file.h"
#include "base/h5.h"
#include "base/memory.h"
#include "data/tokens.h"
#include "score/score_file.h"
#include "score/score_info.h"
#include "score/sink.h"
#include <hdf5_hl.h>
#include <math.h>

struct routing_file {
    const struct run_data *data;
    struct sink sink;
    hid_t file, experts, weights; /* [bases, L, A] */
    int64_t L, A, n_segments, n_bases;
    int64_t *offset;   /* [n_segments] first base of each */
    int64_t *first_of; /* [n_held_out] first segment of each stream */
};

/* A coordinate 0, 1, .. n-1. */
static hid_t create_index(hid_t group, const char *name, int64_t n, const char *long_name) {
    int64_t *values = memory_alloc_array((size_t)n, sizeof *values);
    for (int64_t i = 0; i < n; i++) values[i] = i;
    hid_t d = score_file_whole(group, name, H5T_NATIVE_INT64, n, values, "1", long_name);
    H5DSset_scale(d, name);
    memory_free(values);
    return d;
}

/* [bases, L, A] of the base's choices; `none` is what those of a base have that no window held. */
static hid_t create_choices(const struct routing_file *f, const char *name, hid_t type,
                            hid_t memory, const void *none, const hid_t scales[3],
                            const char *long_name) {
    hsize_t size[3] = {(hsize_t)f->n_bases, (hsize_t)f->L, (hsize_t)f->A}, one = 1;
    hid_t space = H5Screate_simple(3, size, NULL), how = H5Pcreate(H5P_DATASET_CREATE),
          single = H5Screate_simple(1, &one, NULL);
    H5Pset_layout(how, H5D_CONTIGUOUS);
    H5Pset_fill_value(how, memory, none);
    hid_t d = H5Dcreate2(f->file, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT),
          fill = H5Acreate2(d, "_FillValue", type, single, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(fill, memory, none);
    h5_describe(d, "1", long_name);
    for (unsigned k = 0; k < 3; k++) H5DSattach_scale(d, scales[k], k);
    H5Aclose(fill);
    H5Pclose(how);
    H5Sclose(single);
    H5Sclose(space);
    return d;
}

/* The group of the segments of all streams; f->offset is filled in. */
static void write_segments(struct routing_file *f) {
    const struct run_data *d = f->data;
    enum { SOURCE, START, LENGTH, OFFSET, N };
    static const char *const names[N] = {"source", "start", "length", "offset"},
                             *const long_names[N] = {
                                 "number of the source in the deck, the first is 0",
                                 "its first base in the record, the first is 0", "bases of it",
                                 "its first base among all bases of the file"};
    int64_t *columns[N], n = 0, at = 0;
    char **records = memory_alloc_array((size_t)f->n_segments, sizeof *records);
    for (int v = 0; v < N; v++)
        columns[v] = memory_alloc_array((size_t)f->n_segments, sizeof *columns[v]);
    for (int i = 0; i < d->n_held_out; i++)
        for (int64_t k = 0; k < stream_segments(d->held_out[i]); k++, n++) {
            struct stream_segment s = stream_segment(d->held_out[i], k);
            records[n] = corpus_record_name(run_data_held_out(d, i), s.record);
            columns[SOURCE][n] = i, columns[START][n] = s.start, columns[LENGTH][n] = s.n;
            columns[OFFSET][n] = f->offset[n] = at;
            at += s.n;
        }
    hid_t group = H5Gcreate2(f->file, "/segments", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
          scale = create_index(group, "segment", n, "number of the segment"),
          name = score_file_texts(group, "record", records, n,
                                  "name of the record that it is a stretch of");
    H5DSattach_scale(name, scale, 0);
    for (int v = 0; v < N; v++) {
        hid_t column =
            score_file_whole(group, names[v], H5T_NATIVE_INT64, n, columns[v], "1", long_names[v]);
        H5DSattach_scale(column, scale, 0);
        H5Dclose(column);
        memory_free(columns[v]);
    }
    for (int64_t k = 0; k < n; k++) memory_free(records[k]);
    memory_free(records);
    H5Dclose(name);
    H5Dclose(scale);
    H5Gclose(group);
}

/* The bases themselves, and where they lie in their record. */
static void write_bases(const struct routing_file *f, hid_t position, hid_t token) {
    enum { SOME = 1 << 16 };
    uint32_t *tokens = memory_alloc_array(SOME, sizeof *tokens);
    int64_t *places = memory_alloc_array(SOME, sizeof *places), segment = 0;
    for (int i = 0; i < f->data->n_held_out; i++)
        for (int64_t k = 0; k < stream_segments(f->data->held_out[i]); k++, segment++) {
            struct stream_segment s = stream_segment(f->data->held_out[i], k);
            for (int64_t at = 0, n; at < s.n; at += n) {
                n = s.n - at < SOME ? s.n - at : SOME;
                corpus_read(run_data_held_out(f->data, i), s.record, s.start + at, n, tokens);
                for (int64_t b = 0; b < n; b++) places[b] = s.start + at + b;
                score_file_write(token, H5T_NATIVE_UINT32, f->offset[segment] + at, n, tokens);
                score_file_write(position, H5T_NATIVE_INT64, f->offset[segment] + at, n, places);
            }
        }
    memory_free(tokens);
    memory_free(places);
}

static void create(struct routing_file *f, const char *model, const struct config *c) {
    int text = 1, small = c->model.num_local_experts < UINT8_MAX;
    uint16_t none = small ? UINT8_MAX : UINT16_MAX;
    const float nothing = NAN;
    for (int i = 0; i < f->data->n_held_out; i++) text &= !run_data_held_out(f->data, i)->ready;
    hid_t access = h5_file_access(), bytes = text ? H5T_NATIVE_UINT8 : H5T_NATIVE_UINT32,
          type = small ? H5T_NATIVE_UINT8 : H5T_NATIVE_UINT16;
    f->file = H5Fcreate(f->sink.temporary, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    h5_format(f->file, ROUTING_FORMAT, ROUTING_VERSION);
    h5_string(f->file, "Conventions", "CF-1.8");
    h5_string(f->file, "model", model);
    h5_string(f->file, "alphabet", tokens_alphabet_name((enum alphabet_kind)c->dataset.alphabet));
    h5_int64(f->file, "experts", c->model.num_local_experts);
    h5_int64(f->file, "window", c->dataset.max_seq_length);
    h5_int64(f->file, "stride", c->dataset.stride);
    h5_write_code(f->file);
    h5_write_run(f->file);
    write_segments(f);
    hsize_t n = (hsize_t)f->n_bases;
    hid_t position = score_file_dataset(f->file, "position", H5T_NATIVE_INT64, 1, &n, "1",
                                        "place of the base in its record, the first is 0"),
          token = score_file_dataset(f->file, "token", bytes, 1, &n, "1",
                                     text ? "the base: ASCII code of its letter, lower case where "
                                            "it is soft-masked"
                                          : "token"),
          layer = create_index(f->file, "layer", f->L, "layer, the first is 0"),
          choice =
              create_index(f->file, "choice", f->A, "place by routing weight, the largest is 0");
    H5DSset_scale(position, "position");
    H5DSattach_scale(token, position, 0);
    write_bases(f, position, token);
    const hid_t scales[3] = {position, layer, choice};
    f->experts =
        create_choices(f, "expert", type, H5T_NATIVE_UINT16, &none, scales,
                       "expert that the base was sent to, by its number in the whole grid");
    f->weights = create_choices(f, "weight", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, &nothing, scales,
                                "what the expert's result is multiplied by; a base's sum is 1");
    H5Dclose(position);
    H5Dclose(token);
    H5Dclose(layer);
    H5Dclose(choice);
}

struct routing_file *routing_file_open(const char *path, const char *model,
                                       const struct run_data *d, const struct config *c) {
    struct routing_file *f = memory_alloc(sizeof *f);
    f->data = d;
    f->L = c->model.num_hidden_layers, f->A = c->model.num_experts_per_tok;
    f->first_of = memory_alloc_array((size_t)d->n_held_out, sizeof *f->first_of);
    for (int i = 0; i < d->n_held_out; i++) {
        f->first_of[i] = f->n_segments;
        f->n_segments += stream_segments(d->held_out[i]);
        for (int64_t k = 0; k < stream_segments(d->held_out[i]); k++)
            f->n_bases += stream_segment(d->held_out[i], k).n;
    }
    f->offset = memory_alloc_array((size_t)f->n_segments, sizeof *f->offset);
    sink_open(&f->sink, path, /*text=*/0);
    create(f, model, c);
    return f;
}

void routing_file_add(struct routing_file *f, const struct stretch *s, const uint16_t *experts,
                      const float *weights) {
    int64_t first = f->offset[f->first_of[s->stream] + s->segment] + s->first;
    score_file_write(f->experts, H5T_NATIVE_UINT16, first, s->n, experts);
    score_file_write(f->weights, H5T_NATIVE_FLOAT, first, s->n, weights);
}

void routing_file_close(struct routing_file *f) {
    H5Dclose(f->experts);
    H5Dclose(f->weights);
    H5Fclose(f->file);
    sink_close(&f->sink);
    memory_free(f->offset);
    memory_free(f->first_of);
    memory_free(f);
}
