#include "config.h"
#include "checkpoint/checksums.h"
#include "base/file.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static const char self[] = "checksums"; /* the last line's name: the lines before it */

enum { BUFFER = 1 << 20, MOST_BYTES = 1 << 30, MOST_LINE = 512 };

static void print_hash(XXH128_hash_t h, char text[33]) {
    snprintf(text, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

int checksums_of_file(const char *path, char hash[33]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC), reason = 0;
    if (fd < 0) return 0;
    XXH3_state_t *state = XXH3_createState();
    char *buffer = memory_alloc(BUFFER);
    XXH3_128bits_reset(state);
    for (;;) {
        ssize_t got = read(fd, buffer, BUFFER);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) reason = errno;
        if (got <= 0) break;
        XXH3_128bits_update(state, buffer, (size_t)got);
    }
    print_hash(XXH3_128bits_digest(state), hash);
    XXH3_freeState(state);
    memory_free(buffer);
    close(fd);
    errno = reason;
    return reason == 0;
}

/* ---- writing; xxhsum -c takes a line that begins with # for a remark ---- */

char *checksums_remarks(const char *file, const struct extent *list, int n) {
    size_t room = 1, used = 0;
    for (int i = 0; i < n; i++) room += strlen(list[i].dataset) + strlen(file) + 80;
    char *text = memory_alloc(room);
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, room - used,
                                 "# %016" PRIx64 "  %s %s %" PRId64 " %" PRId64 "\n", list[i].hash,
                                 file, list[i].dataset, list[i].offset, list[i].bytes);
    return text;
}

int checksums_write(const char *folder, const struct checksum *list, int n, const char *remarks) {
    size_t room = (size_t)(n + 1) * (sizeof *list + 4) + strlen(remarks) + 1, used = 0;
    char *text = memory_alloc(room), *path = file_join(folder, self), hash[33];
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, room - used, "%s  %s\n", list[i].hash, list[i].name);
    used += (size_t)snprintf(text + used, room - used, "%s", remarks);
    print_hash(XXH3_128bits(text, used), hash);
    used += (size_t)snprintf(text + used, room - used, "# %s  %s\n", hash, self);
    int ok = file_write_atomic(path, text, used), reason = errno;
    memory_free(text);
    memory_free(path);
    errno = reason;
    return ok;
}

/* ---- reading ---- */

/* The last line, made anew from the bytes before it: no byte of it may differ. */
static int last_line_fits(const char *text, size_t bytes) {
    char hash[33], line[64];
    size_t length = (size_t)snprintf(line, sizeof line, "# %032d  %s\n", 0, self);
    if (bytes < length) return 0;
    print_hash(XXH3_128bits(text, bytes - length), hash);
    snprintf(line, sizeof line, "# %s  %s\n", hash, self);
    return memcmp(text + bytes - length, line, length) == 0;
}

/* The file's text if it is whole, else NULL and *problem. */
static char *read_text(const char *folder, char **problem) {
    size_t bytes = 0;
    char *path = file_join(folder, self), *text = file_read(path, MOST_BYTES, &bytes);
    *problem = NULL;
    if (!text)
        *problem = memory_format("%s: %s", path, strerror(errno));
    else if (!last_line_fits(text, bytes)) {
        *problem = memory_format("%s: damaged", path);
        memory_free(text);
        text = NULL;
    }
    memory_free(path);
    return text;
}

/* Copies the next line of a text that ends with a line's end into line[MOST_LINE], cut short if
 * need be (sscanf looks for the end of the whole text each time), and moves on. 0 at the end. */
static int next_line(const char **text, char *line) {
    const char *end = strchr(*text, '\n');
    if (!end) return 0;
    snprintf(line, MOST_LINE, "%.*s", (int)(end - *text), *text);
    *text = end + 1;
    return 1;
}

char *checksums_read(const char *folder, struct checksum **list, int *n) {
    char *problem, *text = read_text(folder, &problem), line[MOST_LINE];
    const char *at = text;
    *list = NULL, *n = 0;
    while (text && next_line(&at, line) && line[0] != '#') {
        struct checksum c;
        memset(&c, 0, sizeof c);
        if (sscanf(line, "%32[0-9a-f]  %63[^/\n]", c.hash, c.name) != 2) {
            problem = memory_format("%s/%s: not a file of checksums", folder, self);
            break;
        }
        *list = memory_resize(*list, (size_t)(*n + 1) * sizeof **list);
        (*list)[(*n)++] = c;
    }
    if (problem) memory_free(*list), *list = NULL, *n = 0;
    memory_free(text);
    return problem;
}

/* ---- locating damage ---- */

/* XXH3-64 of a stretch of a file into *hash; 0 when it cannot be read. */
static int hash_extent(int fd, int64_t offset, int64_t bytes, uint64_t *hash) {
    XXH3_state_t *state = XXH3_createState();
    char *buffer = memory_alloc(BUFFER);
    XXH3_64bits_reset(state);
    while (bytes > 0) {
        ssize_t got =
            pread(fd, buffer, bytes < BUFFER ? (size_t)bytes : (size_t)BUFFER, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        XXH3_64bits_update(state, buffer, (size_t)got);
        offset += got, bytes -= got;
    }
    *hash = XXH3_64bits_digest(state);
    memory_free(buffer);
    XXH3_freeState(state);
    return bytes == 0;
}

/* The first dataset of a shard whose data are not those that were written; "HDF5 metadata" when all
 * are; the caller frees it. */
static char *damaged_place(const char *folder, const char *name) {
    char *problem, *text = read_text(folder, &problem), *path = file_join(folder, name),
                   *found = NULL, line[MOST_LINE];
    const char *at = text;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (text && !found && next_line(&at, line)) {
        char file[64], dataset[128];
        uint64_t hash, seen;
        int64_t offset, bytes;
        if (sscanf(line, "# %" SCNx64 "  %63s %127s %" SCNd64 " %" SCNd64, &hash, file, dataset,
                   &offset, &bytes) == 5 &&
            strcmp(file, name) == 0 && (!hash_extent(fd, offset, bytes, &seen) || seen != hash))
            found = memory_string(dataset);
    }
    if (fd >= 0) close(fd);
    memory_free(path);
    memory_free(text);
    memory_free(problem);
    return found ? found : memory_string("HDF5 metadata");
}

char *checksums_verify(const char *folder, const struct checksum *c) {
    char *path = file_join(folder, c->name), *problem = NULL, hash[33];
    if (!checksums_of_file(path, hash))
        problem = memory_format("%s: %s", path, strerror(errno));
    else if (strcmp(hash, c->hash) != 0) {
        char *place = damaged_place(folder, c->name);
        problem = memory_format("%s: damaged: %s", path, place);
        memory_free(place);
    }
    memory_free(path);
    return problem;
}
