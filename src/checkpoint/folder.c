#include "config.h"
#include "checkpoint/folder.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *checkpoint_folder(const char *run, int64_t step) {
    return memory_format("%s/step_%09lld", run, (long long)step);
}

/* Step of a name "step_N" or "step_N.ANYTHING", -1 for another name; *rest is what follows N. */
static int64_t step_of(const char *name, const char **rest) {
    long long step;
    int used = 0;
    if (sscanf(name, "step_%lld%n", &step, &used) != 1 || used == 0 || step < 0) return -1;
    *rest = name + used;
    return **rest == 0 || **rest == '.' ? step : -1;
}

/* Removes the folders step_N.ANYTHING whose names end so. */
static void remove_all(const char *run, const char *suffix) {
    DIR *d = opendir(run);
    const char *rest;
    for (struct dirent *e; d && (e = readdir(d));)
        if (step_of(e->d_name, &rest) >= 0 && file_has_suffix(rest, suffix)) {
            char *folder = file_join(run, e->d_name);
            file_remove_folder(folder);
            memory_free(folder);
        }
    if (d) closedir(d);
}

static int newest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

int64_t *checkpoint_list(const char *run, int *n) {
    int64_t *list = NULL;
    DIR *d = opendir(run);
    *n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *rest;
        int64_t step = step_of(e->d_name, &rest);
        if (step < 0 || *rest) continue;
        list = memory_resize(list, (size_t)(*n + 1) * sizeof *list);
        list[(*n)++] = step;
    }
    if (d) closedir(d);
    if (*n > 1) qsort(list, (size_t)*n, sizeof *list, newest_first);
    return list;
}

void checkpoint_prune(const char *run, int64_t keep, int64_t every) {
    int n;
    int64_t *list = checkpoint_list(run, &n);
    for (int i = 0; keep > 0 && i < n; i++) {
        if (i < keep || (every > 0 && list[i] % every == 0)) continue;
        char *folder = checkpoint_folder(run, list[i]), *going = memory_format("%s.tmp", folder);
        /* first its name: half a checkpoint must not look whole */
        if (rename(folder, going) == 0) file_remove_folder(going);
        memory_free(going);
        memory_free(folder);
    }
    memory_free(list);
}

void checkpoint_set_aside(const char *run, int64_t step) {
    int n;
    int64_t *list = checkpoint_list(run, &n);
    for (int i = 0; i < n && list[i] > step; i++) {
        char *folder = checkpoint_folder(run, list[i]),
             *aside = memory_format("%s.damaged", folder);
        if (i == 0) remove_all(run, ".damaged"); /* of earlier times: they must not pile up */
        if (rename(folder, aside) == 0)
            log_warn("checkpoint", "%s is damaged: it is now %s", folder, aside);
        else
            log_warn("checkpoint", "%s: %s", folder, strerror(errno));
        memory_free(aside);
        memory_free(folder);
    }
    memory_free(list);
}

void checkpoint_remove_unfinished(const char *run) {
    remove_all(run, ".tmp");
}
