/* What `regulon info` says of the files of score and embed. */
#include "config.h"
#include "score/score_info.h"
#include "base/h5.h"
#include "base/memory.h"
#include <string.h>

/* An attribute as text, "?" where there is none; the caller frees it. */
static char *text(hid_t file, const char *name) {
    char *s = h5_get_string(file, name);
    return s ? s : memory_string("?");
}

static int64_t number(hid_t file, const char *name) {
    int64_t n = -1;
    h5_get_int64(file, name, &n);
    return n;
}

/* The sum of a dataset of one dimension; *n: its elements, unless NULL. */
static double sum(hid_t file, const char *name, int64_t *n) {
    hid_t d = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(d);
    size_t size = (size_t)H5Sget_simple_extent_npoints(space);
    double *x = memory_alloc_array(size, sizeof *x), all = 0;
    H5Dread(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x);
    for (size_t i = 0; i < size; i++) all += x[i];
    if (n) *n = (int64_t)size;
    memory_free(x);
    H5Sclose(space);
    H5Dclose(d);
    return all;
}

void score_info(const char *path, const char *format, FILE *out) {
    int scores = strcmp(format, SCORES_FORMAT) == 0;
    hid_t file = h5_open_user(path);
    h5_check_format(file, path, format, scores ? SCORES_VERSION : EMBEDDINGS_VERSION);
    char *source = text(file, "source"), *model = text(file, "model"),
         *how = text(file, scores ? "strand" : "pool");
    int64_t n;
    double bases = sum(file, "/records/length", &n);
    fprintf(out, "%-11s of %s under %s\n", scores ? "scores" : "embeddings", source, model);
    fprintf(out, "windows     of %lld tokens, each %lld after the one before\n",
            (long long)number(file, "window"), (long long)number(file, "stride"));
    fprintf(out, "records     %lld, of %.0f bases\n", (long long)n, bases);
    if (scores) {
        double scored = sum(file, "/records/scored", NULL),
               nats = sum(file, "/records/log_likelihood", NULL);
        fprintf(out, "scored      %.0f bases, strand %s: %.6f nats, %.6f nats/base\n", scored, how,
                nats, nats / scored);
        fprintf(out, "bases       %s\n",
                H5Lexists(file, "/log_likelihood", H5P_DEFAULT) > 0 ? "each" : "sums only");
    } else {
        fprintf(out, "states      after %lld layers, pool %s\n", (long long)number(file, "layer"),
                how);
    }
    memory_free(source);
    memory_free(model);
    memory_free(how);
    H5Fclose(file);
}
