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

/* The file is open for this long only: a folder may have more of them than a process may open. The
 * disk gets to know of all that is wanted at once, and of as much behind it, which it reads while
 * the caller is at work. */
static void read_data(const struct safetensors *f, void *buf, size_t bytes, uint64_t at) {
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) posix_fadvise(fd, (off_t)at, 2 * (off_t)bytes, POSIX_FADV_WILLNEED);
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
        t->first = at, t->bytes = (uint64_t)t->n * (uint64_t)safetensors_dtype_bytes(t->dtype);
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
