#include "config.h"
#include "checkpoint/safetensors.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_HEADER = 100000000 };

static const struct {
    const char *name;
    int bytes;
} dtypes[] = {{"F64", 8},  {"F32", 4},     {"F16", 2},     {"BF16", 2}, {"I64", 8}, {"I32", 4},
              {"I16", 2},  {"I8", 1},      {"U64", 8},     {"U32", 4},  {"U16", 2}, {"U8", 1},
              {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"C64", 8}};

/* One entry of the header into *t; NULL or what is wrong. */
static char *parse_entry(const char *name, json_t *entry, uint64_t data_bytes,
                         struct safetensor *t) {
    json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape"),
           *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_string(dtype) || !json_is_array(shape) || !json_is_array(offsets) ||
        json_object_size(entry) != 3)
        return memory_format("tensor '%s' does not have just dtype, shape and data_offsets", name);
    int bytes = 0;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(json_string_value(dtype), dtypes[i].name) == 0)
            t->dtype = dtypes[i].name, bytes = dtypes[i].bytes;
    if (!bytes)
        return memory_format("tensor '%s' has the unknown dtype '%.20s'", name,
                             json_string_value(dtype));
    if (json_array_size(shape) > SAFETENSORS_DIMS)
        return memory_format("tensor '%s' has %zu dimensions", name, json_array_size(shape));
    t->n_dims = (int)json_array_size(shape), t->n = 1;
    for (int d = 0; d < t->n_dims; d++) {
        json_t *dim = json_array_get(shape, (size_t)d);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return memory_format("tensor '%s': dimension %d is not a whole number", name, d);
        t->dims[d] = json_integer_value(dim);
        if (__builtin_mul_overflow(t->n, t->dims[d], &t->n))
            return memory_format("tensor '%s' is too large", name);
    }
    json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last) ||
        json_integer_value(first) < 0 || json_integer_value(last) < json_integer_value(first))
        return memory_format("tensor '%s': data_offsets are not [begin, end]", name);
    t->first = (uint64_t)json_integer_value(first);
    t->bytes = (uint64_t)json_integer_value(last) - t->first;
    int64_t size;
    if (__builtin_mul_overflow(t->n, (int64_t)bytes, &size) || (uint64_t)size != t->bytes)
        return memory_format("tensor '%s': %llu bytes of data do not fit its shape and dtype", name,
                             (unsigned long long)t->bytes);
    if (t->first + t->bytes > data_bytes)
        return memory_format("tensor '%s' lies beyond the end of the file", name);
    t->name = memory_string(name);
    return NULL;
}

static char *parse_metadata(json_t *metadata) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) return memory_string("__metadata__ is not an object");
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return memory_format(
        "__metadata__: '%s' is not a string", key);
    return NULL;
}

static int by_place(const void *a, const void *b) {
    const struct safetensor *x = a, *y = b;
    return x->first != y->first   ? (x->first < y->first ? -1 : 1)
           : x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1)
                                  : 0;
}

void safetensors_clear(struct safetensors *f) {
    for (int i = 0; i < f->n; i++) memory_free(f->list[i].name);
    memory_free(f->list);
    f->list = NULL, f->n = 0;
}

static char *parse_all(json_t *root, uint64_t data_bytes, struct safetensors *out) {
    const char *name;
    json_t *entry;
    char *wrong = NULL;
    out->list = memory_alloc_array(json_object_size(root) + 1, sizeof *out->list);
    json_object_foreach(root, name, entry) {
        if (strcmp(name, "__metadata__") == 0)
            wrong = parse_metadata(entry);
        else if (!(wrong = parse_entry(name, entry, data_bytes, &out->list[out->n])))
            out->n++;
        if (wrong) return wrong;
    }
    qsort(out->list, (size_t)out->n, sizeof *out->list, by_place);
    uint64_t end = 0;
    for (int i = 0; i < out->n; i++) {
        if (out->list[i].first != end)
            return memory_format("tensor '%s' begins at %llu, the one before it ends at %llu",
                                 out->list[i].name, (unsigned long long)out->list[i].first,
                                 (unsigned long long)end);
        end += out->list[i].bytes;
    }
    if (end != data_bytes)
        return memory_format("%llu bytes of data, the tensors take %llu",
                             (unsigned long long)data_bytes, (unsigned long long)end);
    return NULL;
}

char *safetensors_parse(const char *header, size_t header_bytes, uint64_t data_bytes,
                        struct safetensors *out) {
    memset(out, 0, sizeof *out);
    if (header_bytes > MAX_HEADER)
        return memory_format("a header of %zu bytes is over the format's 100 MB", header_bytes);
    if (header_bytes == 0 || header[0] != '{')
        return memory_string("the header does not begin with '{'");
    json_error_t error;
    json_t *root = json_loadb(header, header_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return memory_format("the header is not JSON: %s (column %d)", error.text, error.position);
    char *wrong = parse_all(root, data_bytes, out);
    if (wrong) safetensors_clear(out);
    json_decref(root);
    return wrong;
}

/* bytes at `at` into buf; 1, or 0 with errno (EIO at the end of the file). */
static int read_at(int fd, void *buf, size_t bytes, uint64_t at) {
    char *p = buf;
    while (bytes > 0) {
        ssize_t got = pread(fd, p, bytes, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = EIO;
        if (got <= 0) return 0;
        p += got, at += (uint64_t)got, bytes -= (size_t)got;
    }
    return 1;
}

struct safetensors *safetensors_open(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) die_user(EXIT_DATA, "%s: %s", path, strerror(errno));
    off_t size = lseek(fd, 0, SEEK_END);
    unsigned char prefix[8];
    uint64_t n = 0;
    if (size < 8 || !read_at(fd, prefix, 8, 0))
        die_user(EXIT_DATA, "%s: not a safetensors file (%lld bytes)", path, (long long)size);
    for (int i = 7; i >= 0; i--) n = n << 8 | prefix[i];
    if (n > MAX_HEADER || n > (uint64_t)size - 8)
        die_user(EXIT_DATA, "%s: not a safetensors file: a header of %llu bytes in a file of %lld",
                 path, (unsigned long long)n, (long long)size);
    char *header = memory_alloc(n + 1);
    if (!read_at(fd, header, n, 8)) die_io("%s: %s", path, strerror(errno));
    close(fd);
    struct safetensors *f = memory_alloc(sizeof *f);
    char *wrong = safetensors_parse(header, n, (uint64_t)size - 8 - n, f);
    memory_free(header);
    if (wrong) die_user(EXIT_DATA, "%s: %s", path, wrong);
    f->path = memory_string(path), f->data = 8 + n;
    return f;
}

/* The file is open for this long only: a folder may have more of them than a process may open. */
static void read_data(const struct safetensors *f, void *buf, size_t bytes, uint64_t at) {
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || !read_at(fd, buf, bytes, at)) die_io("%s: %s", f->path, strerror(errno));
    close(fd);
}

void safetensors_close(struct safetensors *f) {
    if (!f) return;
    safetensors_clear(f);
    memory_free(f->path);
    memory_free(f);
}

const struct safetensor *safetensors_find(const struct safetensors *f, const char *name) {
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->list[i].name, name) == 0) return &f->list[i];
    return NULL;
}

static float from_half(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023,
             bits;
    if (exponent == 31)
        bits = 0x7f800000u | fraction << 13;
    else if (exponent > 0)
        bits = (exponent + 112) << 23 | fraction << 13;
    else {
        float tiny = (float)fraction * 0x1p-24f; /* subnormal */
        memcpy(&bits, &tiny, sizeof bits);
    }
    bits |= sign;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void safetensors_read(const struct safetensors *f, const struct safetensor *t, int64_t first,
                      int64_t n, float *out) {
    int full = strcmp(t->dtype, "F32") == 0, brain = strcmp(t->dtype, "BF16") == 0,
        half = strcmp(t->dtype, "F16") == 0;
    if (!full && !brain && !half)
        die_user(EXIT_DATA, "%s: tensor '%s' is %s, not a weight", f->path, t->name, t->dtype);
    uint64_t size = full ? 4 : 2, at = f->data + t->first + (uint64_t)first * size;
    /* 2-byte values are read into the upper half of out and widened from the front */
    char *raw = (char *)out + (full ? 0 : (size_t)n * 2);
    read_data(f, raw, (size_t)n * size, at);
    for (int64_t i = 0; !full && i < n; i++) {
        uint16_t word;
        memcpy(&word, raw + 2 * i, sizeof word);
        uint32_t bits = (uint32_t)word << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        out[i] = half ? from_half(word) : value;
    }
}

void safetensors_read_int32(const struct safetensors *f, const struct safetensor *t, int32_t *out) {
    if (strcmp(t->dtype, "I32") != 0)
        die_user(EXIT_DATA, "%s: tensor '%s' is %s, not I32", f->path, t->name, t->dtype);
    read_data(f, out, (size_t)t->bytes, f->data + t->first);
}

static int bytes_of(const char *dtype) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtype, dtypes[i].name) == 0) return dtypes[i].bytes;
    return 0;
}

static json_t *header_of(struct safetensor *list, int n) {
    json_t *root = json_object();
    uint64_t at = 0;
    json_object_set_new(root, "__metadata__", json_pack("{s:s}", "format", "pt"));
    for (int i = 0; i < n; i++) {
        struct safetensor *t = &list[i];
        json_t *shape = json_array();
        t->n = 1;
        for (int d = 0; d < t->n_dims; d++) {
            json_array_append_new(shape, json_integer(t->dims[d]));
            t->n *= t->dims[d];
        }
        t->first = at, t->bytes = (uint64_t)t->n * (uint64_t)bytes_of(t->dtype);
        at += t->bytes;
        json_object_set_new(root, t->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype, "shape", shape,
                                      "data_offsets", (json_int_t)t->first, (json_int_t)at));
    }
    return root;
}

char *safetensors_header(struct safetensor *list, int n, size_t *bytes) {
    json_t *root = header_of(list, n);
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (!text) die("out of memory");
    size_t length = strlen(text),
           padded = (length + 7) / 8 * 8; /* spaces, so that the data are aligned */
    char *header = memory_alloc(padded + 8);
    for (int i = 0; i < 8; i++) header[i] = (char)(padded >> 8 * i & 255);
    memset(header + 8, ' ', padded);
    memcpy(header + 8, text, length);
    free(text);
    *bytes = padded + 8;
    return header;
}

int safetensors_create(const char *path, struct safetensor *list, int n) {
    size_t bytes;
    char *header = safetensors_header(list, n, &bytes);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd >= 0 && !file_write_all(fd, header, bytes)) {
        int reason = errno;
        close(fd);
        fd = -1;
        errno = reason;
    }
    memory_free(header);
    return fd;
}
