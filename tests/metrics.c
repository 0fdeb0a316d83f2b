/* metrics.h5. Without arguments: the tests that need no other reader. tests/metrics_readers.sh uses
 * the same program, with a word first and without MPI, as the writer that it watches and kills. */
#include "config.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "metrics/metrics.h"
#include "tap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Stands in for the configuration, of which metrics see only this. */
void config_each(const struct config *c,
                 void (*visit)(const char *key, const char *value, void *context), void *context) {
    (void)c;
    visit("seed", "42", context);
    visit("optimizer.lr", "0.0003", context);
    visit("dataset.path", "caf\xc3\xa9.fa", context);
}

static struct metrics_run run_of(int64_t n_layers, int64_t n_experts, int64_t n_rows) {
    struct metrics_run run = {
        "dp 1 x ep 2", "cpu (test)", "run-1",
        n_layers,      n_experts,    n_rows,
        n_rows / 5,    n_rows / 3,   {NAN, 2.0, 1.96875, 1.9375, 1.953125, NAN, NAN, NAN, NAN}};
    return run;
}

static void write_eight_bits(struct metrics *m, const struct metrics_run *run, int64_t step) {
    struct low_figures f = low_figures_new((int)run->n_layers);
    for (int64_t i = 0; i < run->n_layers * N_LOW_KINDS; i++) {
        f.values[i] = 1000 * step + i;
        for (int k = 0; k < N_LOW_FIGURES; k++)
            f.figures[k][i] = (double)step + k / 8.0 + (double)i / 64;
    }
    metrics_eight_bits(m, step, &f);
    low_figures_free(&f);
}

/* What row `step` holds, exact in binary so that the reader can demand equality
 * (tests/metrics_readers.py has the same). */
static void write_row(struct metrics *m, const struct metrics_run *run, int64_t step,
                      uint32_t *tokens, float *entropy) {
    double x = (double)step;
    struct metrics_step row = {step,     1000 * step, x + 0.25,  x + 0.5, x + 0.75, x + 1.25,
                               x + 1.5,  x + 1.75,    x + 2.25,  x + 2.5, x + 2.75, x + 3,
                               x + 3.25, 10 * step,   20 * step, tokens,  entropy,  {{0}}};
    for (int64_t l = 0; l < run->n_layers; l++) {
        entropy[l] = (float)(x + (double)l / 8);
        for (int64_t e = 0; e < run->n_experts; e++)
            tokens[l * run->n_experts + e] = (uint32_t)(step * 1000 + l * run->n_experts + e);
    }
    for (int p = 0; p < N_PHASES; p++)
        for (int k = 0; k < 3; k++) row.timing[p][k] = x + p / 8.0 + k / 64.0;
    metrics_step(m, &row);
    if (step % 5 == 0) metrics_validation(m, step, 1000 * step, 2 - x / 1024, 3 - x / 1024);
    if (step % 3 == 0) write_eight_bits(m, run, step);
    if (step % 7 == 0) metrics_event(m, EVENT_CHECKPOINT, step, "saved");
}

/* Rows first .. last, each said on stdout in one write when it is done. */
static void write_rows(struct metrics *m, const struct metrics_run *run, int64_t first,
                       int64_t last, useconds_t pause_us, int say) {
    uint32_t *tokens = memory_alloc_array((size_t)(run->n_layers * run->n_experts), sizeof *tokens);
    float *entropy = memory_alloc_array((size_t)run->n_layers, sizeof *entropy);
    for (int64_t step = first; step <= last; step++) {
        write_row(m, run, step, tokens, entropy);
        if (say) dprintf(STDOUT_FILENO, "%lld\n", (long long)step);
        if (pause_us) usleep(pause_us);
    }
    memory_free(entropy);
    memory_free(tokens);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* write PATH ROWS ROOM PAUSE_US CLOSE | resume PATH AFTER ROWS | info PATH | cost PATH LAYERS
 * EXPERTS ROWS ROOM */
static int serve(int n, char **word) {
    int64_t a[4] = {0};
    for (int i = 2; i < n && i < 6; i++)
        if (!text_to_int(word[i], &a[i - 2])) return 64;
    if (strcmp(word[0], "write") == 0 && n == 6) {
        struct metrics_run run = run_of(2, 4, a[1]);
        struct metrics *m = metrics_create(word[1], NULL, &run);
        write_rows(m, &run, 1, a[0], (useconds_t)a[2], /*say=*/1);
        if (a[3]) metrics_close(m);
    } else if (strcmp(word[0], "resume") == 0 && n == 4) {
        struct metrics_run run = run_of(2, 4, a[1]);
        struct metrics *m = metrics_resume(word[1], NULL, &run, a[0]);
        write_rows(m, &run, a[0] + 1, a[1], 0, /*say=*/1);
        metrics_close(m);
    } else if (strcmp(word[0], "info") == 0 && n == 2) {
        metrics_info(word[1], stdout);
    } else if (strcmp(word[0], "cost") == 0 && n == 6) {
        struct metrics_run run = run_of(a[0], a[1], a[3]);
        double t0 = now_s();
        struct metrics *m = metrics_create(word[1], NULL, &run);
        double t1 = now_s();
        write_rows(m, &run, 1, a[2], 0, /*say=*/0);
        double t2 = now_s();
        printf("create %.3f s, %.1f us a row, %lld bytes\n", t1 - t0,
               (t2 - t1) / (double)a[2] * 1e6, (long long)file_size(word[1]));
        metrics_close(m);
        printf("close %.3f s, %lld bytes\n", now_s() - t2, (long long)file_size(word[1]));
    } else {
        return 64;
    }
    fflush(stdout);
    return 0;
}

/* What `regulon info` prints of the file; the caller frees it. */
static char *info_of(const char *path) {
    FILE *f = tmpfile();
    metrics_info(path, f);
    size_t n = (size_t)ftell(f);
    char *text = memory_alloc(n + 1);
    rewind(f);
    n = fread(text, 1, n, f);
    text[n] = 0;
    fclose(f);
    return text;
}

static void test_says(const char *path, const char *const *lines, const char *what) {
    char *text = info_of(path);
    int ok = 1;
    for (; *lines; lines++)
        if (!strstr(text, *lines)) tap_note("missing: %s", *lines), ok = 0;
    tap_ok(ok, "%s", what);
    if (!ok) fputs(text, stderr);
    memory_free(text);
}

static void test_run(const char *folder) {
    char *path = file_join(folder, "metrics.h5"), *temporary = file_join(folder, "metrics.h5.tmp");
    struct metrics_run run = run_of(2, 4, 10);
    struct metrics *m = metrics_create(path, NULL, &run);
    tap_ok(file_exists(path) && !file_exists(temporary), "a new file has its name at once");
    write_rows(m, &run, 1, 20, 0, /*say=*/0); /* twice the room asked for */
    for (int i = 0; i < 100; i++) metrics_event(m, EVENT_SKIPPED, 20, "loss is not finite");
    metrics_close(m);
    tap_ok(!file_exists(temporary), "nothing is left under the temporary name");
    test_says(path,
              (const char *const[]){
                  "run          run-1, started 20", "grid         dp 1 x ep 2, cpu (test)\n",
                  "experts      4 in each of 2 layers\n",
                  "steps        1 to 20 in 20 rows, 20.0 k tokens\n",
                  "loss         20.2500 at step 20 (1.2500 at step 1)\n",
                  "tokens/s     13 (median of the rows)\n",
                  "validation   best 2.9805 bits per base at step 20 (loss 1.9805), 4 rows\n",
                  "Markov       1.9375 bits per base, order 3: the model is 1.0430 worse\n",
                  "eight bits   6 rows; at step 18, error up to 19.11 (down_gradient, layer 1), "
                  "underflow up to 18.36 (down_gradient, layer 1), not finite up to 18.61 (",
                  "events       103\n", "step 0  start: regulon", "step 14  checkpoint: saved\n",
                  "step 20  skipped_step: loss is not finite\n", NULL},
              "info of a run, with groups that outgrew their room");
    m = metrics_resume(path, NULL, &run, 12);
    write_rows(m, &run, 13, 15, 0, /*say=*/0);
    metrics_close(m);
    test_says(path,
              (const char *const[]){"steps        1 to 15 in 15 rows",
                                    "validation   best 2.9854 bits per base at step 15", "3 rows\n",
                                    "events       105\n", "step 12  resume: after step 12: regulon",
                                    NULL},
              "resume cuts rows and keeps events");
    unlink(path);
    memory_free(temporary);
    memory_free(path);
}

static void test_empty(const char *folder) {
    char *path = file_join(folder, "empty.h5");
    struct metrics_run run = run_of(1, 1, 0);
    metrics_close(metrics_create(path, NULL, &run));
    test_says(path,
              (const char *const[]){"steps        none yet\n", "validation   none yet\n",
                                    "events       1\n", NULL},
              "info of a run without steps");
    unlink(path);
    memory_free(path);
}

static void test_attributes(const char *folder) {
    char *path = file_join(folder, "attributes.h5"), *text;
    int64_t number = 0;
    hid_t list = h5_file_access(), file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, list);
    h5_format(file, "regulon test", 3);
    h5_string(file, "text", "first");
    h5_string(file, "text", "second");
    h5_real(file, "real", 0.5);
    tap_ok((text = h5_get_string(file, "text")) && strcmp(text, "second") == 0,
           "a string attribute is replaced");
    memory_free(text);
    tap_ok(!h5_get_string(file, "real") && !h5_get_string(file, "nothing") &&
               !h5_get_int64(file, "text", &number),
           "an attribute that is absent or of another kind is not read");
    tap_ok(h5_check_format(file, path, "regulon test", 3) == 3 &&
               h5_check_format(file, path, "regulon test", 4) == 3,
           "the version of a file");
    H5Fclose(file);
    H5Pclose(list);
    unlink(path);
    memory_free(path);
}

/* A run of an older program goes on: what its file lacks is there from now on. */
static void test_older(const char *fixture, const char *folder) {
    char *path = file_join(folder, "older.h5");
    size_t bytes;
    char *data = file_read(fixture, 1 << 24, &bytes);
    tap_ok(data && file_write_atomic(path, data, bytes), "a copy of the committed file");
    struct metrics_run run = run_of(2, 4, 10);
    struct metrics *m = metrics_resume(path, NULL, &run, 7);
    write_rows(m, &run, 8, 9, 0, /*say=*/0);
    metrics_close(m);
    double total[9][3] = {{0}};
    hid_t list = h5_file_access(), file = H5Fopen(path, H5F_ACC_RDONLY, list),
          dataset = H5Dopen2(file, "/timing/total", H5P_DEFAULT);
    H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, total);
    tap_ok(isnan(total[6][1]) && total[8][1] == 9 + PHASE_TOTAL / 8.0 + 1 / 64.0,
           "it goes on with a series that it lacks (%g, %g)", total[6][1], total[8][1]);
    H5Dclose(dataset);
    double error[2][N_LOW_KINDS];
    int64_t step = 0;
    dataset = H5Dopen2(file, "/eight_bits/step", H5P_DEFAULT);
    H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &step);
    H5Dclose(dataset);
    dataset = H5Dopen2(file, "/eight_bits/error", H5P_DEFAULT);
    H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, error);
    tap_ok(step == 9 && error[1][2] == 9 + LOW_ERROR / 8.0 + (N_LOW_KINDS + 2) / 64.0,
           "and with a group that it lacks (step %lld, %g)", (long long)step, error[1][2]);
    H5Dclose(dataset);
    H5Fclose(file);
    H5Pclose(list);
    unlink(path);
    memory_free(data);
    memory_free(path);
}

/* Version 1 is read for ever. */
static void test_fixture(const char *folder) {
    const char *srcdir = getenv("srcdir");
    char *path = file_join(srcdir ? srcdir : ".", "tests/fixtures/metrics_v1.h5");
    test_says(path,
              (const char *const[]){
                  "run-1, started 2026-", "grid         dp 1 x ep 2, cpu (test)\n",
                  "4 in each of 2 layers\n", "steps        1 to 7 in 7 rows, 7.00 k tokens\n",
                  "loss         7.2500 at step 7",
                  "validation   best 2.9951 bits per base at step 5 (loss 1.9951), 1 rows\n",
                  "Markov       1.9375 bits per base, order 3", "events       2\n",
                  "step 7  checkpoint: saved\n", NULL},
              "the committed file of version 1 is read");
    test_older(path, folder);
    memory_free(path);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        log_open(0);
        h5_open_library();
        return serve(argc - 1, argv + 1);
    }
    tap_open(&argc, &argv);
    h5_open_library();
    char folder[] = "metrics-test-XXXXXX";
    tap_ok(mkdtemp(folder) != NULL, "temporary folder");
    test_attributes(folder);
    test_run(folder);
    test_empty(folder);
    test_fixture(folder);
    rmdir(folder);
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
