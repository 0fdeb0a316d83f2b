#include "config.h"
#include "train/folder.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Step at which status.json says the run finished, -1: it does not. */
static int64_t finished_step(const char *folder) {
    char *path = file_join(folder, "status.json");
    json_t *status = json_load_file(path, 0, NULL);
    memory_free(path);
    int64_t step = -1;
    json_t *code = json_object_get(status, "code"), *at = json_object_get(status, "step");
    if (json_is_integer(code) && json_integer_value(code) == EXIT_FINISHED && json_is_integer(at))
        step = json_integer_value(at);
    json_decref(status);
    return step;
}

/* The files of an earlier run go into the first previous-N that does not exist. */
static void move_earlier_run(const char *folder) {
    static const char *const files[] = {"used.yaml", "metrics.h5", "status.json", "final_model"};
    char *into = NULL;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *from = file_join(folder, files[i]);
        if (file_exists(from)) {
            for (int n = 1; !into; n++) {
                into = memory_format("%s/previous-%d", folder, n);
                if (file_exists(into)) memory_free(into), into = NULL;
            }
            char *to = file_join(into, files[i]);
            if (!file_make_folders(into) || rename(from, to) != 0)
                die_user(EXIT_CONFIG, "%s: %s", to, strerror(errno));
            memory_free(to);
        }
        memory_free(from);
    }
    if (into) log_info("train", "an earlier run's files are now in %s", into);
    memory_free(into);
}

static void write_used(const struct config *c) {
    char *text = NULL, *path = file_join(c->checkpoint.ckpt_dir, "used.yaml");
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) die("out of memory");
    config_write(c, f);
    fclose(f);
    if (!file_write_atomic(path, text, n))
        die_user(EXIT_CONFIG, "checkpoint.ckpt_dir: %s: %s", path, strerror(errno));
    free(text);
    memory_free(path);
}

int folder_has_finished(const struct config *c) {
    const char *folder = c->checkpoint.ckpt_dir;
    if (!file_make_folders(folder))
        die_user(EXIT_CONFIG, "checkpoint.ckpt_dir: cannot make the folder %s: %s", folder,
                 strerror(errno));
    return finished_step(folder) >= c->num_train_steps;
}

void folder_begin(const struct config *c) {
    move_earlier_run(c->checkpoint.ckpt_dir);
    write_used(c);
}

void folder_write_status(const struct config *c, int code, int64_t step) {
    char *path = file_join(c->checkpoint.ckpt_dir, "status.json");
    char *text = memory_format("{\"code\": %d, \"step\": %lld, \"num_train_steps\": %lld}\n", code,
                               (long long)step, (long long)c->num_train_steps);
    if (!file_write_atomic(path, text, strlen(text)))
        log_warn("train", "%s: %s", path, strerror(errno));
    memory_free(text);
    memory_free(path);
}
