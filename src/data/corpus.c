/* A corpus is checked once, here, so that nothing later has to doubt an offset. HDF5's own errors
 * are muted meanwhile: whatever it trips over, the file is damaged, and one line says so. */
#include "config.h"
#include "data/corpus.h"
#include "base/die.h"
#include "base/h5.h"
#include "base/memory.h"
#include "data/tokens.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A damaged file must not be taken on trust: `ok` is what a file written by `regulon pack` has. */
static void need(int ok, const char *path, const char *what) {
    if (!ok) die_user(EXIT_DATA, "%s: a damaged corpus: %s", path, what);
}

static hid_t open_file(const char *path) {
    hid_t file = h5_open_user(path);
    h5_check_format(file, path, "regulon corpus", CORPUS_VERSION);
    return file;
}

static int64_t read_int64(hid_t file, const char *path, const char *name) {
    int64_t value;
    need(h5_get_int64(file, name, &value), path, name);
    return value;
}

/* Strings of variable length, *n of them; each and the array are the caller's. */
static char **read_strings(hid_t file, const char *path, const char *name, int64_t *n) {
    hid_t a = H5Aopen(file, name, H5P_DEFAULT), type = a < 0 ? -1 : H5Aget_type(a);
    need(type >= 0 && H5Tis_variable_str(type) > 0, path, name);
    hid_t space = H5Aget_space(a);
    *n = (int64_t)H5Sget_simple_extent_npoints(space);
    need(*n > 0 && *n <= CORPUS_MAX_SOURCES, path, name);
    char **value = memory_alloc_array((size_t)*n, sizeof *value),
         **copy = memory_alloc_array((size_t)*n, sizeof *copy);
    need(H5Aread(a, type, value) >= 0, path, name);
    for (int64_t i = 0; i < *n; i++) copy[i] = memory_string(value[i] ? value[i] : "");
    H5Dvlen_reclaim(type, space, H5P_DEFAULT, value);
    memory_free(value);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(a);
    return copy;
}

static void free_strings(char **s, int64_t n) {
    for (int64_t i = 0; i < n; i++) memory_free(s[i]);
    memory_free(s);
}

/* A contiguous dataset of one dimension that lies wholly in the file; returns its place. */
static int64_t locate(hid_t d, const struct corpus *c, const char *name, size_t element_bytes,
                      int64_t *n) {
    need(d >= 0, c->path, name);
    hid_t how = H5Dget_create_plist(d), space = H5Dget_space(d);
    hsize_t size = 0;
    need(H5Pget_layout(how) == H5D_CONTIGUOUS && H5Sget_simple_extent_ndims(space) == 1, c->path,
         name);
    H5Sget_simple_extent_dims(space, &size, NULL);
    H5Pclose(how);
    H5Sclose(space);
    haddr_t place = H5Dget_offset(d);
    need(size > 0 && size <= INT64_MAX / 8 && place != HADDR_UNDEF && place <= c->map_bytes &&
             element_bytes > 0 && size <= (c->map_bytes - place) / element_bytes,
         c->path, name);
    *n = (int64_t)size;
    return (int64_t)place;
}

static int64_t *read_column(hid_t file, const struct corpus *c, const char *name) {
    hid_t d = H5Dopen2(file, name, H5P_DEFAULT);
    int64_t n, *values;
    locate(d, c, name, sizeof *values, &n);
    need(n == c->n_records, c->path, name);
    values = memory_alloc_array((size_t)n, sizeof *values);
    need(H5Dread(d, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0, c->path, name);
    H5Dclose(d);
    return values;
}

static void map_tokens(hid_t file, struct corpus *c) {
    hid_t d = H5Dopen2(file, "/tokens", H5P_DEFAULT), type = d < 0 ? -1 : H5Dget_type(d);
    need(type >= 0, c->path, "/tokens");
    c->token_bytes = H5Tequal(type, H5T_NATIVE_UINT8) > 0    ? 1
                     : H5Tequal(type, H5T_NATIVE_UINT16) > 0 ? 2
                     : H5Tequal(type, H5T_NATIVE_UINT32) > 0 ? 4
                                                             : 0;
    need(c->token_bytes > 0, c->path, "/tokens");
    c->tokens =
        (const char *)c->map + locate(d, c, "/tokens", (size_t)c->token_bytes, &c->n_tokens);
    H5Tclose(type);
    H5Dclose(d);
}

static void map_names(hid_t file, struct corpus *c) {
    hid_t d = H5Dopen2(file, "/records/name", H5P_DEFAULT), type = d < 0 ? -1 : H5Dget_type(d);
    need(type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 &&
             H5Tget_size(type) < INT_MAX,
         c->path, "/records/name");
    c->name_bytes = (int)H5Tget_size(type);
    c->names =
        (const char *)c->map + locate(d, c, "/records/name", (size_t)c->name_bytes, &c->n_records);
    H5Tclose(type);
    H5Dclose(d);
}

static void map_file(struct corpus *c) {
    struct stat s;
    int fd = open(c->path, O_RDONLY | O_CLOEXEC);
    need(fd >= 0 && fstat(fd, &s) == 0 && s.st_size > 0, c->path, "the file cannot be read");
    c->map_bytes = (size_t)s.st_size;
    c->map = mmap(NULL, c->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (c->map == MAP_FAILED) die_io("cannot map %s into memory: %s", c->path, strerror(errno));
    close(fd);
}

struct corpus *corpus_open(const char *path) {
    struct corpus *c = memory_alloc(sizeof *c);
    c->path = memory_string(path);
    H5E_BEGIN_TRY {
        hid_t file = open_file(path);
        map_file(c);
        map_names(file, c);
        map_tokens(file, c);
        c->offset = read_column(file, c, "/records/offset");
        c->length = read_column(file, c, "/records/length");
        char *alphabet = h5_get_string(file, "alphabet");
        c->alphabet = alphabet ? tokens_alphabet(alphabet) : -1;
        need(c->alphabet >= 0, path, "alphabet");
        memory_free(alphabet);
        int64_t eos = read_int64(file, path, "eos"), max = read_int64(file, path, "max_token");
        need(eos >= 0 && eos <= INT_MAX, path, "eos");
        need(max >= 0 && max <= UINT32_MAX &&
                 (c->token_bytes == 4 || max >> 8 * c->token_bytes == 0),
             path, "max_token");
        c->eos = (int)eos, c->max_token = (uint32_t)max;
        int64_t ready;
        /* files of the first days do not say: then text has one byte a token */
        if (!h5_get_int64(file, "ready_tokens", &ready)) ready = c->token_bytes > 1;
        c->ready = ready != 0;
        H5Fclose(file);
    }
    H5E_END_TRY
    for (int64_t i = 0; i < c->n_records; i++)
        need(c->offset[i] >= 0 && c->length[i] >= 0 && c->offset[i] <= c->n_tokens &&
                 c->length[i] <= c->n_tokens - c->offset[i],
             path, "a record that reaches beyond /tokens");
    return c;
}

void corpus_close(struct corpus *c) {
    munmap(c->map, c->map_bytes);
    memory_free(c->offset);
    memory_free(c->length);
    memory_free(c->path);
    memory_free(c);
}

char *corpus_record_name(const struct corpus *c, int64_t i) {
    assert(i >= 0 && i < c->n_records);
    const char *name = c->names + (size_t)i * (size_t)c->name_bytes;
    return memory_format("%.*s", c->name_bytes, name);
}

void corpus_read(const struct corpus *c, int64_t record, int64_t start, int64_t n, uint32_t *out) {
    assert(record >= 0 && record < c->n_records && start >= 0 && n >= 0 &&
           n <= c->length[record] - start);
    const unsigned char *from =
        (const unsigned char *)c->tokens + (c->offset[record] + start) * c->token_bytes;
    if (c->token_bytes == 4) memcpy(out, from, (size_t)n * 4);
    if (c->token_bytes == 1)
        for (int64_t i = 0; i < n; i++) out[i] = from[i];
    if (c->token_bytes == 2)
        for (int64_t i = 0; i < n; i++) {
            uint16_t t;
            memcpy(&t, from + 2 * i, 2);
            out[i] = t;
        }
}

static void read_numbers(hid_t file, const char *path, const char *name, int64_t n,
                         int64_t *values) {
    hid_t a = H5Aopen(file, name, H5P_DEFAULT), space = a < 0 ? -1 : H5Aget_space(a);
    need(a >= 0 && H5Sget_simple_extent_npoints(space) == n &&
             H5Aread(a, H5T_NATIVE_INT64, values) >= 0,
         path, name);
    H5Sclose(space);
    H5Aclose(a);
}

struct corpus_source *corpus_read_sources(const char *path, int64_t *n) {
    struct corpus_source *s = NULL;
    H5E_BEGIN_TRY {
        hid_t file = open_file(path);
        int64_t n_checksums;
        char **paths = read_strings(file, path, "sources", n);
        char **checksums = read_strings(file, path, "sources_xxh128", &n_checksums);
        need(n_checksums == *n, path, "sources_xxh128");
        int64_t *bytes = memory_alloc_array((size_t)*n, sizeof *bytes),
                *modified = memory_alloc_array((size_t)*n, sizeof *bytes);
        read_numbers(file, path, "sources_bytes", *n, bytes);
        read_numbers(file, path, "sources_modified_ns", *n, modified);
        s = memory_alloc_array((size_t)*n, sizeof *s);
        for (int64_t i = 0; i < *n; i++) {
            s[i] = (struct corpus_source){
                .path = memory_string(paths[i]), .bytes = bytes[i], .modified = modified[i]};
            snprintf(s[i].checksum, sizeof s[i].checksum, "%s", checksums[i]);
        }
        memory_free(bytes);
        memory_free(modified);
        free_strings(paths, *n);
        free_strings(checksums, n_checksums);
        H5Fclose(file);
    }
    H5E_END_TRY
    return s;
}

void corpus_free_sources(struct corpus_source *s, int64_t n) {
    for (int64_t i = 0; i < n; i++) memory_free(s[i].path);
    memory_free(s);
}
