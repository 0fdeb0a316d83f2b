/* A file has a fixed length, given when it is made. All that needs another length (a group that is
 * full, a resume, a clean end) is one act: a new file beside the old one, the rows copied, the new
 * one renamed over the old. */
#include "config.h"
#include "metrics/metrics.h"
#include "metrics/layout.h"
#include "base/die.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/memory.h"
#include "base/revision.h"
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_EVENT_ROWS = 64, COPY_BYTES = 8 << 20 };

struct metrics {
    char *path, *temporary;
    struct layout layout;
    int64_t rows[N_GROUPS]; /* written so far */
    double markov_bits_per_base[MARKOV_ORDERS];
};

static int64_t at_least_1(int64_t n) {
    return n > 0 ? n : 1;
}

static void visit_key(const char *key, const char *value, void *group) {
    h5_string(*(hid_t *)group, key, value ? value : "");
}

/* /code, /config and /run; start: NULL: now. */
static void describe_run(hid_t file, const struct config *c, const struct metrics_run *run,
                         const char *start) {
    char host[256] = "", now[32];
    time_t seconds = time(NULL);
    struct tm utc;
    gethostname(host, sizeof host - 1);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    h5_write_code(file);
    hid_t group = H5Gcreate2(file, "config", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    config_each(c, visit_key, &group);
    H5Gclose(group);
    group = H5Gcreate2(file, "run", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    h5_string(group, "start", start ? start : now);
    h5_string(group, "host", host);
    h5_string(group, "grid", run->grid);
    h5_string(group, "backend", run->backend);
    h5_string(group, "run_id", run->run_id);
    H5Gclose(group);
}

static void copy_rows(struct layout *from, struct layout *to, enum series_id s, int64_t n) {
    size_t row_bytes = layout_row_bytes(from, s);
    int64_t block = at_least_1((int64_t)(COPY_BYTES / row_bytes));
    void *values = memory_alloc_array((size_t)(block < n ? block : n), row_bytes);
    for (int64_t row = 0; row < n; row += block) {
        int64_t some = n - row < block ? n - row : block;
        layout_read(from, s, row, some, values);
        layout_write(to, s, row, some, values);
    }
    memory_free(values);
}

/* rows[g] rows of each group. */
static void copy_groups(struct layout *from, struct layout *to, const int64_t rows[N_GROUPS]) {
    enum series_id s = 0;
    for (enum series_group g = 0; g < N_GROUPS; g++)
        for (enum series_id step = series_step_of(g); s <= step; s++)
            copy_rows(from, to, s, rows[g]);
}

/* The file under the temporary name is whole: now it is the file. */
static void publish(const struct metrics *m, const struct layout *l) {
    H5Fflush(l->file, H5F_SCOPE_GLOBAL);
    if (!file_publish(m->temporary, m->path)) die_io("%s: %s", m->path, strerror(errno));
}

/* Puts a file with room for `size->rows` in the place of m's; rows and descriptions stay. */
static void rewrite(struct metrics *m, const struct series_size *size) {
    static const char *const groups[] = {"code", "config", "run"};
    struct layout old = m->layout;
    layout_create(&m->layout, m->temporary, size, m->markov_bits_per_base);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        H5Ocopy(old.file, groups[i], m->layout.file, groups[i], H5P_DEFAULT, H5P_DEFAULT);
    copy_groups(&old, &m->layout, m->rows);
    publish(m, &m->layout);
    layout_close(&old);
}

/* Room for one more row in group g. */
static void make_room(struct metrics *m, enum series_group g) {
    if (m->rows[g] < m->layout.size.rows[g]) return;
    struct series_size size = m->layout.size;
    size.rows[g] *= 2;
    rewrite(m, &size);
}

static void put(struct metrics *m, enum series_group g, enum series_id s, const void *value) {
    layout_write(&m->layout, s, m->rows[g], 1, value);
}

/* The row becomes whole: `step` last, and all of it out of this process. */
static void end_row(struct metrics *m, enum series_group g, int64_t step) {
    assert(step >= 0); /* -1: not written */
    put(m, g, series_step_of(g), &step);
    H5Fflush(m->layout.file, H5F_SCOPE_GLOBAL);
    m->rows[g]++;
}

static struct metrics *metrics_new(const char *path, const struct metrics_run *run,
                                   struct series_size *size) {
    struct metrics *m = memory_alloc(sizeof *m);
    assert(run->n_layers > 0 && run->n_experts > 0);
    m->path = memory_string(path);
    m->temporary = memory_format("%s.tmp", path);
    memcpy(m->markov_bits_per_base, run->markov_bits_per_base, sizeof m->markov_bits_per_base);
    int64_t steps = at_least_1(run->n_rows), validations = at_least_1(run->n_validation_rows);
    *size = (struct series_size){
        {steps, steps, steps, validations, FIRST_EVENT_ROWS}, run->n_layers, run->n_experts};
    return m;
}

struct metrics *metrics_create(const char *path, const struct config *c,
                               const struct metrics_run *run) {
    struct series_size size;
    struct metrics *m = metrics_new(path, run, &size);
    layout_create(&m->layout, m->temporary, &size, m->markov_bits_per_base);
    describe_run(m->layout.file, c, run, NULL);
    publish(m, &m->layout);
    char *text =
        memory_format("%s %s, %s, %s", PACKAGE_STRING, revision_name(), run->grid, run->backend);
    metrics_event(m, EVENT_START, 0, text);
    memory_free(text);
    return m;
}

static char *run_start(hid_t file) {
    if (H5Lexists(file, "run", H5P_DEFAULT) <= 0) return NULL;
    hid_t group = H5Gopen2(file, "run", H5P_DEFAULT);
    char *start = h5_get_string(group, "start");
    H5Gclose(group);
    return start;
}

struct metrics *metrics_resume(const char *path, const struct config *c,
                               const struct metrics_run *run, int64_t after_step) {
    struct layout old;
    struct series_size size;
    layout_open(&old, path);
    if (old.size.n_layers != run->n_layers || old.size.n_experts != run->n_experts)
        die_user(EXIT_DATA, "%s: it has %lld layers of %lld experts, this run has %lld of %lld",
                 path, (long long)old.size.n_layers, (long long)old.size.n_experts,
                 (long long)run->n_layers, (long long)run->n_experts);
    struct metrics *m = metrics_new(path, run, &size);
    for (enum series_group g = 0; g < N_GROUPS; g++) {
        m->rows[g] = layout_rows(&old, g, g == GROUP_EVENTS ? INT64_MAX : after_step);
        while (size.rows[g] <= m->rows[g]) size.rows[g] *= 2;
    }
    char *start = run_start(old.file);
    layout_create(&m->layout, m->temporary, &size, m->markov_bits_per_base);
    describe_run(m->layout.file, c, run, start);
    copy_groups(&old, &m->layout, m->rows);
    publish(m, &m->layout);
    layout_close(&old);
    char *text = memory_format("after step %lld: %s %s, %s, %s", (long long)after_step,
                               PACKAGE_STRING, revision_name(), run->grid, run->backend);
    metrics_event(m, EVENT_RESUME, after_step, text);
    memory_free(text);
    memory_free(start);
    return m;
}

void metrics_step(struct metrics *m, const struct metrics_step *row) {
    const void *const steps[] = {
        [STEPS_TOKENS] = &row->tokens,
        [STEPS_LOSS] = &row->loss,
        [STEPS_AUX_LOSS] = &row->aux_loss,
        [STEPS_Z_LOSS] = &row->z_loss,
        [STEPS_GRAD_NORM] = &row->grad_norm,
        [STEPS_LEARNING_RATE] = &row->learning_rate,
        [STEPS_STEP_S] = &row->step_s,
        [STEPS_TOKENS_PER_S] = &row->tokens_per_s,
        [STEPS_TFLOPS] = &row->tflops,
        [STEPS_MFU] = &row->mfu,
        [STEPS_MEMORY_BYTES] = &row->memory_bytes,
        [STEPS_USEFUL_TOKENS] = &row->useful_tokens,
        [STEPS_PADDED_TOKENS] = &row->padded_tokens,
    };
    for (enum series_group g = GROUP_STEPS; g <= GROUP_TIMING; g++) make_room(m, g);
    put(m, GROUP_EXPERTS, EXPERTS_TOKENS, row->expert_tokens);
    put(m, GROUP_EXPERTS, EXPERTS_ENTROPY, row->router_entropy);
    end_row(m, GROUP_EXPERTS, row->step);
    for (int phase = 0; phase < N_PHASES; phase++)
        put(m, GROUP_TIMING, (enum series_id)(TIMING_DATA + phase), row->timing[phase]);
    end_row(m, GROUP_TIMING, row->step);
    for (enum series_id s = STEPS_TOKENS; s < STEPS_STEP; s++) put(m, GROUP_STEPS, s, steps[s]);
    end_row(m, GROUP_STEPS, row->step);
}

void metrics_validation(struct metrics *m, int64_t step, int64_t tokens, double loss,
                        double bits_per_base) {
    make_room(m, GROUP_VALIDATION);
    put(m, GROUP_VALIDATION, VALIDATION_TOKENS, &tokens);
    put(m, GROUP_VALIDATION, VALIDATION_LOSS, &loss);
    put(m, GROUP_VALIDATION, VALIDATION_BITS_PER_BASE, &bits_per_base);
    end_row(m, GROUP_VALIDATION, step);
}

/* As much of `text` as fits, cut between two characters of UTF-8, the rest NUL. */
static void fit_text(char *field, size_t size, const char *text) {
    size_t n = strlen(text);
    if (n > size)
        for (n = size; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;) n--;
    memset(field, 0, size);
    memcpy(field, text, n);
}

void metrics_event(struct metrics *m, enum metrics_event kind, int64_t step, const char *text) {
    static const char *const names[] = {
        [EVENT_START] = "start",           [EVENT_RESUME] = "resume",
        [EVENT_CHECKPOINT] = "checkpoint", [EVENT_PREEMPTION] = "preemption",
        [EVENT_SKIPPED] = "skipped_step",  [EVENT_OVERFLOW] = "overflow",
    };
    char kind_field[METRICS_KIND_BYTES], text_field[METRICS_TEXT_BYTES];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double time_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    fit_text(kind_field, sizeof kind_field, names[kind]);
    fit_text(text_field, sizeof text_field, text);
    make_room(m, GROUP_EVENTS);
    put(m, GROUP_EVENTS, EVENTS_TIME, &time_s);
    put(m, GROUP_EVENTS, EVENTS_KIND, kind_field);
    put(m, GROUP_EVENTS, EVENTS_TEXT, text_field);
    end_row(m, GROUP_EVENTS, step);
}

void metrics_close(struct metrics *m) {
    if (m == NULL) return;
    struct series_size size = m->layout.size;
    /* An empty group keeps one unwritten row: netCDF takes a dimension of length 0 for an unlimited
     * one. */
    for (enum series_group g = 0; g < N_GROUPS; g++) size.rows[g] = at_least_1(m->rows[g]);
    rewrite(m, &size);
    layout_close(&m->layout);
    memory_free(m->temporary);
    memory_free(m->path);
    memory_free(m);
}
