#include "config.h"
#include "score/record_table.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/memory.h"
#include "data/tokens.h"
#include "score/score_file.h"
#include "score/score_info.h"
#include "score/sink.h"
#include <math.h>
#include <string.h>

struct row {
    int64_t stream, record, n_bases, n_targets;
    double loss; /* sum, nats */
    struct markov_sum markov;
};

struct record_table {
    const struct run_data *data;
    const struct config *config;
    const char *model;
    struct sink sink;
    int hdf5;
    struct row *rows; /* [n] */
    int64_t n;
    int64_t **row_of; /* [n_held_out][segments] */
};

/* Rows of the records, and which one each segment belongs to. */
static void list_rows(struct record_table *t) {
    const struct run_data *d = t->data;
    int64_t room = 0;
    for (int i = 0; i < d->n_held_out; i++) room += stream_segments(d->held_out[i]);
    t->rows = memory_alloc_array((size_t)room, sizeof *t->rows);
    t->row_of = memory_alloc_array((size_t)d->n_held_out, sizeof *t->row_of);
    for (int i = 0; i < d->n_held_out; i++) {
        int64_t n = stream_segments(d->held_out[i]);
        t->row_of[i] = memory_alloc_array((size_t)n, sizeof **t->row_of);
        for (int64_t k = 0; k < n; k++) {
            struct stream_segment s = stream_segment(d->held_out[i], k);
            const struct row *last = t->n ? &t->rows[t->n - 1] : NULL;
            if (!last || last->stream != i || last->record != s.record)
                t->rows[t->n++] = (struct row){.stream = i, .record = s.record};
            t->rows[t->n - 1].n_bases += s.n;
            t->row_of[i][k] = t->n - 1;
        }
    }
}

struct record_table *record_table_open(const char *path, const char *model,
                                       const struct run_data *d, const struct config *c) {
    struct record_table *t = memory_alloc(sizeof *t);
    t->data = d, t->config = c, t->model = model;
    t->hdf5 = file_has_suffix(path, ".h5");
    sink_open(&t->sink, path, /*text=*/!t->hdf5);
    list_rows(t);
    return t;
}

void record_table_add(struct record_table *t, const struct stretch *s) {
    struct row *r = &t->rows[t->row_of[s->stream][s->segment]];
    r->n_targets += s->n_targets, r->loss += s->loss;
}

/* The chains score what the model was evaluated on once more. */
static void add_markov(struct record_table *t) {
    const struct run_data *d = t->data;
    if (!d->chains) return;
    int64_t n = stream_segments(d->held_out[0]);
    struct markov_sum *parts = memory_alloc_array((size_t)n, sizeof *parts);
    struct markov_result all;
    markov_score(d->chains, d->held_out[0], t->config->validation.num_batches, &all, parts);
    for (int64_t k = 0; k < n; k++) {
        struct markov_sum *sum = &t->rows[t->row_of[0][k]].markov;
        for (int order = 0; order < MARKOV_ORDERS; order++)
            sum->bits[order] += parts[k].bits[order];
        sum->n_targets += parts[k].n_targets;
    }
    memory_free(parts);
}

static double mean(double sum, int64_t n) {
    return n ? sum / (double)n : NAN;
}

static char *name_of(const struct record_table *t, const struct row *r) {
    return corpus_record_name(run_data_held_out(t->data, (int)r->stream), r->record);
}

/* ---- text ---- */

static void write_text(struct record_table *t) {
    FILE *f = t->sink.out;
    fputs("name\tbases\ttargets\tloss\tbits_per_base", f);
    for (int k = 0; k < MARKOV_ORDERS; k++) fprintf(f, "\tmarkov_%d", k);
    fputc('\n', f);
    for (int64_t i = 0; i < t->n; i++) {
        const struct row *r = &t->rows[i];
        char *name = name_of(t, r);
        double loss = mean(r->loss, r->n_targets), reals[2 + MARKOV_ORDERS] = {loss, loss / M_LN2};
        for (int k = 0; k < MARKOV_ORDERS; k++)
            reals[2 + k] = mean(r->markov.bits[k], r->markov.n_targets);
        sink_tsv(&t->sink, name);
        fprintf(f, "\t%lld\t%lld", (long long)r->n_bases, (long long)r->n_targets);
        for (int k = 0; k < 2 + MARKOV_ORDERS; k++) {
            fputc('\t', f);
            sink_real(&t->sink, reals[k], "nan");
        }
        fputc('\n', f);
        memory_free(name);
    }
}

/* ---- HDF5 ---- */

enum column { BASES, TARGETS, LOSS, BITS, N_COLUMNS };

static void write_columns(const struct record_table *t, hid_t file, const char *const *names,
                          const hid_t *types) {
    static const char *const units[] = {"1", "1", "nats/token", "bits/base"},
                             *const long_names[] = {"held-out bases of the record",
                                                    "of them predicted",
                                                    "nats per target; NaN without targets",
                                                    "bits per target; NaN without targets"};
    hsize_t size[2] = {(hsize_t)t->n, MARKOV_ORDERS};
    for (int k = 0; k < N_COLUMNS; k++) {
        hid_t d = score_file_dataset(file, names[k], types[k], 1, size, units[k], long_names[k]);
        for (int64_t i = 0; i < t->n; i++) {
            const struct row *r = &t->rows[i];
            double loss = mean(r->loss, r->n_targets), real = k == LOSS ? loss : loss / M_LN2;
            int64_t whole = k == BASES ? r->n_bases : r->n_targets;
            score_file_write(d, types[k], i, 1, k < LOSS ? (void *)&whole : (void *)&real);
        }
        H5Dclose(d);
    }
    hid_t d = score_file_dataset(file, "/records/markov_bits_per_base", H5T_NATIVE_DOUBLE, 2, size,
                                 "bits/base",
                                 "the same of Markov chains of orders 0 to 8; NaN: not computed");
    for (int64_t i = 0; i < t->n; i++) {
        double bits[MARKOV_ORDERS];
        for (int k = 0; k < MARKOV_ORDERS; k++)
            bits[k] = mean(t->rows[i].markov.bits[k], t->rows[i].markov.n_targets);
        score_file_write(d, H5T_NATIVE_DOUBLE, i, 1, bits);
    }
    H5Dclose(d);
}

static void write_hdf5(const struct record_table *t) {
    static const char *const names[] = {"/records/bases", "/records/targets", "/records/loss",
                                        "/records/bits_per_base"};
    const hid_t types[] = {H5T_NATIVE_INT64, H5T_NATIVE_INT64, H5T_NATIVE_DOUBLE,
                           H5T_NATIVE_DOUBLE};
    hid_t access = h5_file_access(),
          file = H5Fcreate(t->sink.temporary, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    h5_format(file, EVALUATION_FORMAT, EVALUATION_VERSION);
    h5_string(file, "model", t->model);
    h5_string(file, "alphabet",
              tokens_alphabet_name((enum alphabet_kind)t->config->dataset.alphabet));
    h5_write_code(file);
    h5_write_run(file);
    H5Gclose(H5Gcreate2(file, "/records", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    char **all = memory_alloc_array((size_t)t->n, sizeof *all);
    for (int64_t i = 0; i < t->n; i++) all[i] = name_of(t, &t->rows[i]);
    H5Dclose(score_file_texts(file, "/records/name", all, t->n, "name of the record"));
    for (int64_t i = 0; i < t->n; i++) memory_free(all[i]);
    memory_free(all);
    write_columns(t, file, names, types);
    H5Fclose(file);
}

void record_table_close(struct record_table *t) {
    add_markov(t);
    if (t->hdf5)
        write_hdf5(t);
    else
        write_text(t);
    sink_close(&t->sink);
    for (int i = 0; i < t->data->n_held_out; i++) memory_free(t->row_of[i]);
    memory_free(t->row_of);
    memory_free(t->rows);
    memory_free(t);
}
