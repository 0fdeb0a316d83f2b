#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/corpus.h"
#include "data/pack.h"
#include "data/reader.h"
#include "data/tokens.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

static int is_hdf5(const char *path) {
    struct reader *r = reader_open(path, READER_BYTES);
    size_t n;
    const unsigned char *first = reader_peek(r, &n);
    int is = n >= 8 && memcmp(first, "\x89HDF\r\n\x1a\n", 8) == 0;
    char *error = reader_error(r) ? memory_string(reader_error(r)) : NULL;
    int code = reader_error_code(r);
    reader_close(r);
    if (error) die_user(code, "%s", error);
    return is;
}

/* One name for each source and each way to read it: FOLDER/BASENAME-HASH.h5 */
static char *cache_name(const char *path, const char *folder, const struct pack_options *o) {
    char full[PATH_MAX];
    if (realpath(path, full) == NULL)
        die_user(EXIT_DATA, "%s: cannot be opened: %s", path, strerror(errno));
    char *key =
        memory_format("%d\n%s\n%s\n%s\n%d", CORPUS_VERSION, full, tokens_alphabet_name(o->alphabet),
                      o->text_field ? o->text_field : "", o->jsonl);
    char *name = memory_format("%s-%016llx.h5", file_basename(path),
                               (unsigned long long)XXH3_64bits(key, strlen(key)));
    char *cache = file_join(folder, name);
    memory_free(name);
    memory_free(key);
    return cache;
}

static int same_checksum(const char *path, const char *checksum) {
    struct reader *r = reader_open(path, READER_BYTES);
    const unsigned char *data;
    size_t n;
    char hex[33];
    while (reader_slice(r, &data, &n)) continue;
    reader_checksum(r, hex);
    int same = reader_error(r) == NULL && strcmp(hex, checksum) == 0;
    reader_close(r);
    return same;
}

/* Size and time are looked at first; reading the whole file is still much cheaper than packing it.
 */
static int up_to_date(const char *path, const char *cache) {
    struct stat now;
    if (!file_exists(cache) || stat(path, &now) != 0) return 0;
    int64_t n;
    struct corpus_source *s = corpus_read_sources(cache, &n);
    int same = n == 1 && s->bytes == (int64_t)now.st_size &&
               s->modified == (int64_t)now.st_mtim.tv_sec * 1000000000 + now.st_mtim.tv_nsec &&
               same_checksum(path, s->checksum);
    corpus_free_sources(s, n);
    return same;
}

char *pack_cached(const char *path, const char *cache_folder, const struct pack_options *o) {
    if (is_hdf5(path)) return memory_string(path);
    char *cache = cache_name(path, cache_folder, o), tokens[32], time[32];
    if (up_to_date(path, cache)) return cache;
    struct pack_report report;
    if (!file_make_folders(cache_folder))
        die_user(EXIT_IO, "%s: cannot be made: %s", cache_folder, strerror(errno));
    pack_files(&path, 1, cache, o, &report);
    log_info("pack", "%s: %s tokens packed into %s in %s", path,
             text_count(tokens, sizeof tokens, (double)report.tokens), cache,
             text_duration(time, sizeof time, report.seconds));
    return cache;
}
