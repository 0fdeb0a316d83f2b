/* An installation that was moved (DESTDIR, a relocated prefix) keeps its inner order: what was
 * ROOT/bin and ROOT/libexec/regulon still has one ROOT. */
#include "config.h"
#include "base/place.h"
#include "base/file.h"
#include "base/memory.h"
#include <string.h>
#include <unistd.h>

/* Folder of the running program, links resolved; the caller frees it. NULL when it is not known. */
static char *program_folder(void) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return NULL;
    self[n] = 0;
    return file_folder(self);
}

/* Length of the folders that two absolute paths begin with: 6 of /a/b/c/d and /a/b/x is "/a/b". */
static size_t common_root(const char *a, const char *b) {
    size_t root = 0;
    for (size_t i = 0;; i++) {
        int end_a = a[i] == '/' || a[i] == 0, end_b = b[i] == '/' || b[i] == 0;
        if (end_a && end_b) root = i;
        if (a[i] != b[i] || a[i] == 0) return root;
    }
}

/* The place of `installed` for a program that lies in `folder` instead of BIN_FOLDER; NULL when it
 * was not moved, or there is no such place. */
static char *moved(const char *folder, const char *installed) {
    size_t root = common_root(BIN_FOLDER, installed), n = strlen(folder);
    const char *tail = BIN_FOLDER + root; /* "/bin" */
    if (strcmp(folder, BIN_FOLDER) == 0 || !file_has_suffix(folder, tail)) return NULL;
    char *place = memory_format("%.*s%s", (int)(n - strlen(tail)), folder, installed + root);
    if (file_exists(place)) return place;
    memory_free(place);
    return NULL;
}

char *place_folder(const char *in_source, const char *installed) {
    char *folder = program_folder(), *place = NULL;
    size_t n = strlen(BUILD_FOLDER);
    if (folder && strncmp(folder, BUILD_FOLDER, n) == 0 && (folder[n] == 0 || folder[n] == '/'))
        place = memory_string(in_source);
    else if (folder)
        place = moved(folder, installed);
    memory_free(folder);
    return place ? place : memory_string(installed);
}
