/* Scores as HDF5: docs/formats.md is the reference. Rank 0. */
#ifndef REGULON_SCORE_SCORE_FILE_H
#define REGULON_SCORE_SCORE_FILE_H
#include "base/h5.h"
#include "data/corpus.h"
#include "score/request.h"
#include "score/score_info.h"

struct record_score {
    int64_t length, scored;         /* bases; of them with a log-likelihood */
    double log_likelihood;          /* nats, their sum */
    double per_base, bits_per_base; /* its mean, and that in bits with the other sign; or NaN */
};

struct score_file;

struct score_file *score_file_open(const char *path, const struct request *o,
                                   const struct corpus *corpus, const struct strands *strands);
void score_file_record(struct score_file *f, int64_t i, const struct record_score *r,
                       const float *values);
void score_file_close(struct score_file *f);

/* What the files of score and embed begin with: format, /code, /run, attributes of the command
 * line, /records/{name, offset, length}. The caller closes it. */
hid_t score_file_create(const char *path, const char *format, int version, const struct request *o,
                        const struct corpus *corpus, const struct strands *strands);

/* A contiguous dataset of n_dims dimensions, filled with NaN or 0 until it is written. */
hid_t score_file_dataset(hid_t file, const char *name, hid_t type, int n_dims, const hsize_t *size,
                         const char *units, const char *long_name);

/* One of n values that is written at once; the caller closes it. */
hid_t score_file_whole(hid_t file, const char *name, hid_t type, int64_t n, const void *values,
                       const char *units, const char *long_name);

/* The same of strings of variable length, UTF-8. */
hid_t score_file_texts(hid_t file, const char *name, char *const *texts, int64_t n,
                       const char *long_name);

/* Writes `rows` rows from row `first` on; a dataset of at most 3 dimensions. */
void score_file_write(hid_t dataset, hid_t type, int64_t first, int64_t rows, const void *values);
#endif
