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

/* ---- is it the same run? ---- */

/* Keys that a finished run may be asked for again with: where and how it runs, not what it
 * computes. */
static int may_change(const char *key) {
    static const char *const free_keys[] = {"num_train_steps", "backend", "engine.", "parallelism.",
                                            "checkpoint.",     "logger.", "train.",  "validation."};
    for (size_t i = 0; i < sizeof free_keys / sizeof *free_keys; i++)
        if (strncmp(key, free_keys[i], strlen(free_keys[i])) == 0) return 1;
    return 0;
}

struct comparison {
    const char *folder;
    char **values; /* of the earlier run, by the number of the key */
    int n, i;
};

static void note_value(const char *key, const char *value, void *context) {
    struct comparison *c = context;
    (void)key;
    c->values = memory_resize(c->values, (size_t)(c->n + 1) * sizeof *c->values);
    c->values[c->n++] = memory_string(value);
}

static void compare_value(const char *key, const char *value, void *context) {
    struct comparison *c = context;
    const char *earlier = c->values[c->i++];
    if (strcmp(earlier, value) != 0 && !may_change(key))
        die_user(EXIT_CONFIG,
                 "%s: %s, but %s in the finished run in %s; --fresh runs it anew, another "
                 "checkpoint.ckpt_dir keeps both",
                 key, value, earlier, c->folder);
}

/* Refuses (78) keys that differ from those of the run that has finished in the folder. */
static void refuse_changes(const struct config *c) {
    char *path = file_join(c->checkpoint.ckpt_dir, "used.yaml"),
         *text = file_read(path, 1 << 20, NULL);
    if (text) {
        struct comparison compare = {.folder = c->checkpoint.ckpt_dir};
        struct config *earlier = config_parse(text, "used.yaml");
        config_each(earlier, note_value, &compare);
        config_each(c, compare_value, &compare);
        for (int i = 0; i < compare.n; i++) memory_free(compare.values[i]);
        memory_free(compare.values);
        config_free(earlier);
    }
    memory_free(text);
    memory_free(path);
}

int folder_has_finished(const struct config *c, int fresh) {
    const char *folder = c->checkpoint.ckpt_dir;
    if (!file_make_folders(folder))
        die_user(EXIT_CONFIG, "checkpoint.ckpt_dir: cannot make the folder %s: %s", folder,
                 strerror(errno));
    if (fresh || finished_step(folder) < c->num_train_steps) return 0;
    refuse_changes(c);
    return 1;
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
