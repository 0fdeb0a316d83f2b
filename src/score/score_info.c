/* What `regulon info` says of the files of score, embed and eval. */
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

/* Sizes [n] of a dataset. */
static void sizes(hid_t file, const char *name, hsize_t *n) {
    hid_t d = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(d);
    H5Sget_simple_extent_dims(space, n, NULL);
    H5Sclose(space);
    H5Dclose(d);
}

static void print_sequences(hid_t file, int scores, FILE *out) {
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
}

static void print_evaluation(hid_t file, FILE *out) {
    char *model = text(file, "model");
    hsize_t n;
    sizes(file, "/records/loss", &n);
    double *loss = memory_alloc_array(n, sizeof *loss),
           *targets = memory_alloc_array(n, sizeof *loss), all = 0, nats = 0;
    const char *const names[] = {"/records/loss", "/records/targets"};
    double *const values[] = {loss, targets};
    for (int k = 0; k < 2; k++) {
        hid_t d = H5Dopen2(file, names[k], H5P_DEFAULT);
        H5Dread(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values[k]);
        H5Dclose(d);
    }
    for (hsize_t i = 0; i < n; i++)
        if (targets[i] > 0) all += targets[i], nats += targets[i] * loss[i];
    fprintf(out, "evaluation  of %lld records under %s\n", (long long)n, model);
    fprintf(out, "loss        %.6f nats/token over %.0f targets\n", nats / all, all);
    memory_free(loss);
    memory_free(targets);
    memory_free(model);
}

static void print_routing(hid_t file, FILE *out) {
    char *model = text(file, "model");
    hsize_t n[3], segments;
    sizes(file, "/expert", n);
    sizes(file, "/segments/length", &segments);
    fprintf(out, "routing     of %lld layers of %lld experts, %lld of them a base, under %s\n",
            (long long)n[1], (long long)number(file, "experts"), (long long)n[2], model);
    fprintf(out, "segments    %lld, of %lld bases\n", (long long)segments, (long long)n[0]);
    memory_free(model);
}

static const struct {
    const char *format;
    int version;
} formats[] = {{SCORES_FORMAT, SCORES_VERSION},
               {EMBEDDINGS_FORMAT, EMBEDDINGS_VERSION},
               {EVALUATION_FORMAT, EVALUATION_VERSION},
               {ROUTING_FORMAT, ROUTING_VERSION}};
enum { SCORES, EMBEDDINGS, EVALUATION, ROUTING, N_FORMATS };

static int find(const char *format) {
    int i = 0;
    while (i < N_FORMATS && strcmp(formats[i].format, format) != 0) i++;
    return i;
}

int score_info_knows(const char *format) {
    return find(format) < N_FORMATS;
}

void score_info(const char *path, const char *format, FILE *out) {
    int kind = find(format);
    hid_t file = h5_open_user(path);
    h5_check_format(file, path, format, formats[kind].version);
    if (kind == EVALUATION)
        print_evaluation(file, out);
    else if (kind == ROUTING)
        print_routing(file, out);
    else
        print_sequences(file, kind == SCORES, out);
    H5Fclose(file);
}
