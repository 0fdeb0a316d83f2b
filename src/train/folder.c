#include "config.h"
#include "train/folder.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* folder/name, if it is there, into *into: the first previous-N that does not exist, chosen when it
 * is needed. */
static void move_file(const char *folder, const char *name, char **into) {
    char *from = file_join(folder, name);
    if (file_exists(from)) {
        for (int n = 1; !*into; n++) {
            *into = memory_format("%s/previous-%d", folder, n);
            if (file_exists(*into)) memory_free(*into), *into = NULL;
        }
        char *to = file_join(*into, name);
        if (!file_make_folders(*into) || rename(from, to) != 0)
            die_user(EXIT_CONFIG, "%s: %s", to, strerror(errno));
        memory_free(to);
    }
    memory_free(from);
}

/* The files of an earlier run go into a folder of their own; nothing is deleted. used.yaml goes
 * last: while any other is here it says whose they are. */
static void move_earlier_run(const char *folder) {
    static const char *const files[] = {"metrics.h5", "status.json", "starts", "final_model",
                                        "used.yaml"};
    char *into = NULL;
    int n;
    int64_t *steps = checkpoint_list(folder, &n);
    for (int i = 0; i < n; i++) {
        char *path = checkpoint_folder(folder, steps[i]);
        move_file(folder, file_basename(path), &into);
        memory_free(path);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) move_file(folder, files[i], &into);
    if (into) log_info("train", "an earlier run's files are now in %s", into);
    memory_free(steps);
    memory_free(into);
}

char *folder_used_text(const struct config *c) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) die("out of memory");
    config_write(c, f);
    fclose(f);
    char *copy = memory_string(text);
    free(text);
    return copy;
}

void folder_write_used(const struct config *c, const char *text) {
    char *path = file_join(c->checkpoint.ckpt_dir, "used.yaml");
    if (!file_write_atomic(path, text, strlen(text)))
        die_user(EXIT_CONFIG, "checkpoint.ckpt_dir: %s: %s", path, strerror(errno));
    memory_free(path);
}

/* ---- is it the same run? ---- */

/* Keys that a finished run may be asked for again with: where and how it runs, not what it
 * computes. */
static int may_change(const char *key, int goes_on) {
    static const char *const free_keys[] = {
        "num_train_steps", "backend", "engine.", "memory.", "parallelism.", "checkpoint.",
        "logger.", "profiler.", "train.", "validation.", "watchdog.", "precision.statistics",
        /* and of a run that goes on: */
        "optimizer.", "scheduler.", "dataset.read_ahead", "precision."};
    enum { N = sizeof free_keys / sizeof *free_keys, FINISHED = N - 4 };
    for (int i = 0; i < (goes_on ? N : FINISHED); i++)
        if (strncmp(key, free_keys[i], strlen(free_keys[i])) == 0) return 1;
    return 0;
}

struct comparison {
    const char *folder;
    int goes_on;
    char **values; /* of the earlier run, by the number of the key */
    int n, i;
    char *changes; /* the differences that are allowed, as text */
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
    if (strcmp(earlier, value) == 0) return;
    if (!may_change(key, c->goes_on))
        die_user(EXIT_CONFIG,
                 "%s: %s, but %s in the %s run in %s; --fresh runs it anew, another "
                 "checkpoint.ckpt_dir keeps both",
                 key, value, earlier, c->goes_on ? "unfinished" : "finished", c->folder);
    char *more = memory_format("%s%s%s from %s to %s", c->changes, c->changes[0] ? ", " : "", key,
                               earlier, value);
    memory_free(c->changes);
    c->changes = more;
}

/* Refuses (78) keys that differ from those of the run in the folder, which has finished or goes on.
 * Returns the differences that are allowed, as text; the caller frees it. */
static char *refuse_changes(const struct config *c, int goes_on) {
    char *path = file_join(c->checkpoint.ckpt_dir, "used.yaml"),
         *text = file_read(path, 1 << 20, NULL);
    struct comparison compare = {.folder = c->checkpoint.ckpt_dir, .goes_on = goes_on};
    compare.changes = memory_string("");
    if (text) {
        struct config *earlier = config_parse(text, "used.yaml");
        config_each(earlier, note_value, &compare);
        config_each(c, compare_value, &compare);
        for (int i = 0; i < compare.n; i++) memory_free(compare.values[i]);
        memory_free(compare.values);
        config_free(earlier);
    }
    memory_free(text);
    memory_free(path);
    return compare.changes;
}

int folder_has_finished(const struct config *c, int fresh) {
    const char *folder = c->checkpoint.ckpt_dir;
    if (!file_make_folders(folder))
        die_user(EXIT_CONFIG, "checkpoint.ckpt_dir: cannot make the folder %s: %s", folder,
                 strerror(errno));
    if (fresh || finished_step(folder) < c->num_train_steps) return 0;
    memory_free(refuse_changes(c, /*goes_on=*/0));
    return 1;
}

int folder_begin(const struct config *c, int fresh, char **changes) {
    const char *folder = c->checkpoint.ckpt_dir;
    int n = 0;
    memory_free(checkpoint_list(folder, &n));
    int goes_on = n > 0 && !fresh && c->checkpoint.resume_from_checkpoint;
    checkpoint_remove_unfinished(folder);
    *changes = goes_on ? refuse_changes(c, /*goes_on=*/1) : memory_string("");
    if (!goes_on) move_earlier_run(folder);
    if (fresh) { /* the job scripts' mark of a fresh start that has not come so far */
        char *mark = file_join(folder, "fresh");
        unlink(mark);
        memory_free(mark);
    }
    return goes_on;
}

void folder_write_status(const struct config *c, int code, int64_t step, const char *seen) {
    char *path = file_join(c->checkpoint.ckpt_dir, "status.json");
    json_t *status = json_pack("{s:i, s:I, s:I}", "code", code, "step", (json_int_t)step,
                               "num_train_steps", (json_int_t)c->num_train_steps);
    if (seen) json_object_set_new(status, "watchdog", json_string(seen));
    char *text = json_dumps(status, JSON_PRESERVE_ORDER);
    if (!text || !file_write_atomic(path, text, strlen(text)))
        log_warn("train", "%s: %s", path, strerror(errno));
    json_decref(status);
    free(text);
    memory_free(path);
}
