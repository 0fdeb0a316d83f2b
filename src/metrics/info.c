/* What a metrics file says, in a screenful. */
#include "config.h"
#include "metrics/metrics.h"
#include "metrics/layout.h"
#include "base/h5.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/text.h"
#include "model/low_statistics.h"
#include <math.h>
#include <time.h>

/* A string attribute of a group; "?" when it is not there. The caller frees it. */
static char *attribute(hid_t file, const char *group_name, const char *name) {
    if (H5Lexists(file, group_name, H5P_DEFAULT) <= 0) return memory_string("?");
    hid_t group = H5Gopen2(file, group_name, H5P_DEFAULT);
    char *value = h5_get_string(group, name);
    H5Gclose(group);
    return value ? value : memory_string("?");
}

static void print_run(struct layout *l, FILE *out) {
    static const char *const names[][2] = {
        {"run", "run_id"},  {"run", "start"},    {"run", "host"},     {"run", "grid"},
        {"run", "backend"}, {"code", "version"}, {"code", "revision"}};
    enum { N = sizeof names / sizeof *names };
    char *v[N];
    for (int i = 0; i < N; i++) v[i] = attribute(l->file, names[i][0], names[i][1]);
    fprintf(out, "run          %s, started %s on %s\n", v[0], v[1], v[2]);
    fprintf(out, "grid         %s, %s\n", v[3], v[4]);
    fprintf(out, "code         %s %s (%s)\n", PACKAGE_NAME, v[5], v[6]);
    fprintf(out, "experts      %lld in each of %lld layers\n", (long long)l->size.n_experts,
            (long long)l->size.n_layers);
    for (int i = 0; i < N; i++) memory_free(v[i]);
}

static void *read_rows(struct layout *l, enum series_id s, int64_t n) {
    void *values = memory_alloc_array((size_t)n, layout_row_bytes(l, s));
    layout_read(l, s, 0, n, values);
    return values;
}

/* Median of the finite values; sorts them. NaN: there are none. */
static double finite_median(double *x, int64_t n) {
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(x[i])) x[kept++] = x[i];
    return kept ? median(x, (size_t)kept) : NAN;
}

static void print_steps(struct layout *l, FILE *out) {
    char text[32];
    int64_t n = layout_rows(l, GROUP_STEPS, INT64_MAX);
    if (n == 0) {
        fprintf(out, "steps        none yet\n");
        return;
    }
    int64_t *step = read_rows(l, STEPS_STEP, n), *tokens = read_rows(l, STEPS_TOKENS, n);
    double *loss = read_rows(l, STEPS_LOSS, n), *speed = read_rows(l, STEPS_TOKENS_PER_S, n),
           *memory = read_rows(l, STEPS_MEMORY_BYTES, n), most = NAN;
    for (int64_t i = 0; i < n; i++) most = fmax(most, memory[i]);
    fprintf(out, "steps        %lld to %lld in %lld rows, %s tokens\n", (long long)step[0],
            (long long)step[n - 1], (long long)n,
            text_count(text, sizeof text, (double)tokens[n - 1]));
    fprintf(out, "loss         %.4f at step %lld (%.4f at step %lld)\n", loss[n - 1],
            (long long)step[n - 1], loss[0], (long long)step[0]);
    fprintf(out, "tokens/s     %s (median of the rows)\n",
            text_count(text, sizeof text, finite_median(speed, n)));
    if (!isnan(most)) /* older files have none */
        fprintf(out, "memory       %s on a rank at most\n", text_bytes(text, sizeof text, most));
    memory_free(memory);
    memory_free(speed);
    memory_free(loss);
    memory_free(tokens);
    memory_free(step);
}

static void print_validation(struct layout *l, FILE *out) {
    int64_t n = layout_rows(l, GROUP_VALIDATION, INT64_MAX), best = -1;
    int64_t *step = read_rows(l, VALIDATION_STEP, n);
    double *loss = read_rows(l, VALIDATION_LOSS, n),
           *bits = read_rows(l, VALIDATION_BITS_PER_BASE, n);
    for (int64_t i = 0; i < n; i++)
        if (!isnan(loss[i]) && (best < 0 || loss[i] < loss[best])) best = i;
    if (best < 0)
        fprintf(out, "validation   none yet\n");
    else
        fprintf(out, "validation   best %.4f bits per base at step %lld (loss %.4f), %lld rows\n",
                bits[best], (long long)step[best], loss[best], (long long)n);
    double markov[MARKOV_ORDERS];
    int order = -1;
    layout_read_markov(l, markov);
    for (int i = 0; i < MARKOV_ORDERS; i++)
        if (!isnan(markov[i]) && (order < 0 || markov[i] < markov[order])) order = i;
    if (order >= 0) fprintf(out, "Markov       %.4f bits per base, order %d", markov[order], order);
    if (order >= 0 && best >= 0)
        fprintf(out, ": the model is %.4f %s", fabs(markov[order] - bits[best]),
                bits[best] < markov[order] ? "better" : "worse");
    if (order >= 0) putc('\n', out);
    memory_free(bits);
    memory_free(loss);
    memory_free(step);
}

/* The largest of a figure in row `row`, and where it is, after `name`. */
static void print_worst(struct layout *l, enum series_id s, int64_t row, const char *name,
                        FILE *out) {
    int64_t n = l->size.n_layers * N_LOW_KINDS, worst = -1;
    double *x = memory_alloc_array((size_t)n, sizeof *x);
    layout_read(l, s, row, 1, x);
    for (int64_t i = 0; i < n; i++)
        if (!isnan(x[i]) && (worst < 0 || x[i] > x[worst])) worst = i;
    if (worst < 0 || x[worst] == 0)
        fprintf(out, ", %s none", name);
    else
        fprintf(out, ", %s up to %.4g (%s, layer %lld)", name, x[worst],
                layout_kinds[worst % N_LOW_KINDS], (long long)(worst / N_LOW_KINDS));
    memory_free(x);
}

static void print_eight_bits(struct layout *l, FILE *out) {
    int64_t n = layout_rows(l, GROUP_EIGHT_BITS, INT64_MAX), step;
    if (n == 0) return;
    layout_read(l, EIGHT_STEP, n - 1, 1, &step);
    fprintf(out, "eight bits   %lld rows; at step %lld", (long long)n, (long long)step);
    print_worst(l, EIGHT_ERROR, n - 1, "error", out);
    print_worst(l, EIGHT_UNDERFLOW, n - 1, "underflow", out);
    print_worst(l, EIGHT_NONFINITE, n - 1, "not finite", out);
    putc('\n', out);
}

static void print_events(struct layout *l, FILE *out) {
    int64_t n = layout_rows(l, GROUP_EVENTS, INT64_MAX);
    int64_t *step = read_rows(l, EVENTS_STEP, n);
    double *time_s = read_rows(l, EVENTS_TIME, n);
    char *kind = read_rows(l, EVENTS_KIND, n), *text = read_rows(l, EVENTS_TEXT, n);
    fprintf(out, "events       %lld\n", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        char when[32] = "?";
        time_t seconds = isfinite(time_s[i]) && fabs(time_s[i]) < 1e11 ? (time_t)time_s[i] : 0;
        struct tm utc;
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
        fprintf(out, "  %s  step %lld  %.*s: %.*s\n", when, (long long)step[i], METRICS_KIND_BYTES,
                kind + i * METRICS_KIND_BYTES, METRICS_TEXT_BYTES, text + i * METRICS_TEXT_BYTES);
    }
    memory_free(text);
    memory_free(kind);
    memory_free(time_s);
    memory_free(step);
}

void metrics_info(const char *path, FILE *out) {
    struct layout l;
    layout_open(&l, path);
    fprintf(out, "metrics      %s\n", path);
    print_run(&l, out);
    print_steps(&l, out);
    print_validation(&l, out);
    print_eight_bits(&l, out);
    print_events(&l, out);
    layout_close(&l);
}
