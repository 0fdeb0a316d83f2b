/* A file has a fixed length, given when it is made. All that needs another length (a group that is
 * full, a resume, a clean end) is one act: a new file beside the old one, the rows copied, the new
 * one renamed over the old. */
#include "config.h"
#include "metrics/metrics.h"
#include "metrics/layout.h"
#include "base/die.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/revision.h"
#include "config/attributes.h"
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
    int64_t last_validation;
    int failing; /* the last row was lost, which has been said */
    double markov_bits_per_base[MARKOV_ORDERS];
};

static int64_t at_least_1(int64_t n) {
    return n > 0 ? n : 1;
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
    config_write_attributes(c, file);
    hid_t group = H5Gcreate2(file, "run", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
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
            if (from->dataset[s] >= 0) copy_rows(from, to, s, rows[g]);
}

/* The file under the temporary name is whole: now it is the file. */
static void publish(const struct metrics *m, const struct layout *l) {
    H5Fflush(l->file, H5F_SCOPE_GLOBAL);
    if (!file_publish(m->temporary, m->path)) die_io("%s: %s", m->path, strerror(errno));
}

/* Says that the file cannot be written, once until it can be again. */
static void complain(struct metrics *m, const char *reason) {
    if (!m->failing)
        log_warn("metrics", "%s cannot be written: %s; rows are lost, training goes on", m->path,
                 reason);
    m->failing = 1;
}

/* Puts a file with room for `size->rows` in the place of m's; rows and descriptions stay. Returns
 * 0, and nothing has changed, where that cannot be done. */
static int rewrite(struct metrics *m, const struct series_size *size) {
    static const char *const groups[] = {"code", "config", "run"};
    struct layout old = m->layout, new;
    h5_tolerate();
    layout_create(&new, m->temporary, size, m->markov_bits_per_base);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        H5Ocopy(old.file, groups[i], new.file, groups[i], H5P_DEFAULT, H5P_DEFAULT);
    copy_groups(&old, &new, m->rows);
    H5Fflush(new.file, H5F_SCOPE_GLOBAL);
    const char *reason = h5_tolerate_end();
    if (!reason && !file_publish(m->temporary, m->path)) reason = strerror(errno);
    if (reason) {
        complain(m, reason);
        unlink(m->temporary);
    }
    m->layout = reason ? old : new;
    h5_tolerate(); /* to close what did not come about fails, and so may what did */
    layout_close(reason ? &new : &old);
    h5_tolerate_end();
    return reason == NULL;
}

/* Room for one more row in group g: 1, or 0. */
static int make_room(struct metrics *m, enum series_group g) {
    if (m->rows[g] < m->layout.size.rows[g]) return 1;
    struct series_size size = m->layout.size;
    size.rows[g] *= 2;
    return rewrite(m, &size);
}

static void put(struct metrics *m, enum series_group g, enum series_id s, const void *value) {
    layout_write(&m->layout, s, m->rows[g], 1, value);
}

/* The row becomes whole: `step` last, and all of it out of this process. A row that could not be
 * written is lost: the next one takes its place. */
static void end_row(struct metrics *m, enum series_group g, int64_t step) {
    assert(step >= 0); /* -1: not written */
    put(m, g, series_step_of(g), &step);
    H5Fflush(m->layout.file, H5F_SCOPE_GLOBAL);
    const char *reason = h5_tolerate_end();
    if (reason) return complain(m, reason);
    m->failing = 0;
    m->rows[g]++;
}

/* Before the values of a row; its end_row follows unless this returns 0. */
static int begin_row(struct metrics *m, enum series_group g) {
    if (!make_room(m, g)) return 0;
    h5_tolerate();
    return 1;
}

static struct metrics *metrics_new(const char *path, const struct metrics_run *run,
                                   struct series_size *size) {
    struct metrics *m = memory_alloc(sizeof *m);
    assert(run->n_layers > 0 && run->n_experts > 0);
    m->path = memory_string(path);
    m->temporary = memory_format("%s.tmp", path);
    m->last_validation = -1;
    memcpy(m->markov_bits_per_base, run->markov_bits_per_base, sizeof m->markov_bits_per_base);
    int64_t steps = at_least_1(run->n_rows), validations = at_least_1(run->n_validation_rows),
            samples = at_least_1(run->n_eight_bits_rows);
    *size = (struct series_size){{steps, steps, steps, validations, FIRST_EVENT_ROWS, samples},
                                 run->n_layers,
                                 run->n_experts};
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
    if (m->rows[GROUP_VALIDATION] > 0)
        layout_read(&old, VALIDATION_STEP, m->rows[GROUP_VALIDATION] - 1, 1, &m->last_validation);
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
        [STEPS_MFU_6N] = &row->mfu_6n,
        [STEPS_MEMORY_BYTES] = &row->memory_bytes,
        [STEPS_USEFUL_TOKENS] = &row->useful_tokens,
        [STEPS_PADDED_TOKENS] = &row->padded_tokens,
    };
    for (enum series_group g = GROUP_STEPS; g <= GROUP_TIMING; g++)
        if (!make_room(m, g)) return;
    begin_row(m, GROUP_EXPERTS);
    put(m, GROUP_EXPERTS, EXPERTS_TOKENS, row->expert_tokens);
    put(m, GROUP_EXPERTS, EXPERTS_ENTROPY, row->router_entropy);
    end_row(m, GROUP_EXPERTS, row->step);
    begin_row(m, GROUP_TIMING);
    for (int phase = 0; phase < N_PHASES; phase++)
        put(m, GROUP_TIMING, (enum series_id)(TIMING_DATA + phase), row->timing[phase]);
    end_row(m, GROUP_TIMING, row->step);
    begin_row(m, GROUP_STEPS);
    for (enum series_id s = STEPS_TOKENS; s < STEPS_STEP; s++) put(m, GROUP_STEPS, s, steps[s]);
    end_row(m, GROUP_STEPS, row->step);
}

void metrics_validation(struct metrics *m, int64_t step, int64_t tokens, double loss,
                        double bits_per_base) {
    if (!begin_row(m, GROUP_VALIDATION)) return;
    put(m, GROUP_VALIDATION, VALIDATION_TOKENS, &tokens);
    put(m, GROUP_VALIDATION, VALIDATION_LOSS, &loss);
    put(m, GROUP_VALIDATION, VALIDATION_BITS_PER_BASE, &bits_per_base);
    end_row(m, GROUP_VALIDATION, step);
    m->last_validation = step;
}

void metrics_eight_bits(struct metrics *m, int64_t step, const struct low_figures *f) {
    if (!begin_row(m, GROUP_EIGHT_BITS)) return;
    put(m, GROUP_EIGHT_BITS, EIGHT_VALUES, f->values);
    for (int k = 0; k < N_LOW_FIGURES; k++)
        put(m, GROUP_EIGHT_BITS, (enum series_id)(EIGHT_UNDERFLOW + k), f->figures[k]);
    end_row(m, GROUP_EIGHT_BITS, step);
}

/* As much of `text` as fits, cut between two characters of UTF-8, the rest NUL. */
static void fit_text(char *field, size_t size, const char *text) {
    size_t n = strlen(text);
    if (n > size)
        for (n = size; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;) n--;
    memset(field, 0, size);
    memcpy(field, text, n);
}

int64_t metrics_steps(const struct metrics *m) {
    return m->rows[GROUP_STEPS];
}

int64_t metrics_last_validation(const struct metrics *m) {
    return m->last_validation;
}

void metrics_event(struct metrics *m, enum metrics_event kind, int64_t step, const char *text) {
    static const char *const names[] = {
        [EVENT_START] = "start",           [EVENT_RESUME] = "resume",
        [EVENT_CHECKPOINT] = "checkpoint", [EVENT_PREEMPTION] = "preemption",
        [EVENT_SKIPPED] = "skipped_step",  [EVENT_OVERFLOW] = "overflow",
        [EVENT_SPIKE] = "spike",           [EVENT_STOP] = "stop",
    };
    char kind_field[METRICS_KIND_BYTES], text_field[METRICS_TEXT_BYTES];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double time_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    fit_text(kind_field, sizeof kind_field, names[kind]);
    fit_text(text_field, sizeof text_field, text);
    if (!begin_row(m, GROUP_EVENTS)) return;
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
    h5_tolerate(); /* a full disk: the rows that could be written are */
    layout_close(&m->layout);
    h5_tolerate_end();
    memory_free(m->temporary);
    memory_free(m->path);
    memory_free(m);
}
