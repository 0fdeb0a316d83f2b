/* Runs a fuzz target over its committed inputs, for `make check`, with any compiler. The folder is
 * tests/fuzz/corpus/FUZZ_TARGET of the source, or the arguments are files. */
#include "config.h"
#include "fuzz.h"
#include "base/file.h"
#include "base/memory.h"
#include "tap.h"
#include <dirent.h>
#include <stdlib.h>

static void replay(const char *path) {
    size_t n;
    char *data = file_read(path, 1 << 24, &n);
    if (data) LLVMFuzzerTestOneInput((const uint8_t *)data, n);
    tap_ok(data != NULL, "%s", file_basename(path));
    memory_free(data);
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    for (int i = 1; i < argc; i++) replay(argv[i]);
    if (argc > 1) return tap_close();
    const char *srcdir = getenv("srcdir");
    char *folder = file_join(srcdir ? srcdir : ".", "tests/fuzz/corpus/" FUZZ_TARGET);
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort), files = 0;
    for (int i = 0; i < n; i++) {
        char *path = file_join(folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') replay(path), files++;
        memory_free(path);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    tap_ok(files > 0, "%d inputs in %s", files, folder);
    memory_free(folder);
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
