#include "config.h"
#include "data/records.h"
#include "base/file.h"
#include "base/memory.h"
#include "grid/watchdog.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Buffers: one that stays in the second-level cache from parser to write, and the first when
 * nothing is written. */
enum { FLUSH_BYTES = 256 << 10, MEMORY_BYTES = 4 << 10 };

struct records *records_new(int token_bytes, int fd, const char *path) {
    struct records *r = memory_alloc(sizeof *r);
    r->token_bytes = token_bytes;
    r->fd = fd;
    r->path = path;
    r->tokens = memory_alloc(r->room = fd < 0 ? MEMORY_BYTES : FLUSH_BYTES);
    return r;
}

void records_free(struct records *r) {
    memory_free(r->tokens);
    memory_free(r->length);
    memory_free(r->names);
    memory_free(r->error);
    memory_free(r);
}

/* Four tables, so that equal neighbours do not wait for each other's store. */
static void count_bytes(int64_t *total, const unsigned char *p, size_t n) {
    uint32_t table[4][256] = {{0}}; /* n < 2^32 */
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t v;
        memcpy(&v, p + i, 8);
        for (int k = 0; k < 8; k++) table[k & 3][v >> 8 * k & 255]++;
    }
    for (; i < n; i++) table[0][p[i]]++;
    for (int c = 0; c < 256; c++)
        total[c] += (int64_t)table[0][c] + table[1][c] + table[2][c] + table[3][c];
}

static uint32_t largest(const struct records *r) {
    uint32_t max = r->max_token;
    const uint16_t *two = (const void *)r->tokens;
    const uint32_t *four = (const void *)r->tokens;
    size_t n = r->used / (size_t)r->token_bytes;
    if (r->token_bytes == 1)
        for (uint32_t c = 0; c < 256; c++)
            if (r->report.composition[c] && c > max) max = c;
    if (r->token_bytes == 2)
        for (size_t i = 0; i < n; i++) max = two[i] > max ? two[i] : max;
    if (r->token_bytes == 4)
        for (size_t i = 0; i < n; i++) max = four[i] > max ? four[i] : max;
    return max;
}

void records_write(struct records *r, const void *data, size_t bytes) {
    if (r->error || file_write_all(r->fd, data, bytes)) return;
    r->error = memory_format("cannot write %s: %s", r->path, strerror(errno));
}

void records_flush(struct records *r) {
    watchdog_progress();
    if (r->token_bytes == 1) count_bytes(r->report.composition, r->tokens, r->used);
    r->max_token = largest(r);
    if (r->fd < 0) return;
    records_write(r, r->tokens, r->used);
    r->used = 0;
}

unsigned char *records_room(struct records *r, size_t n) {
    n *= (size_t)r->token_bytes;
    if (r->used + n > r->room) {
        if (r->fd >= 0 && r->used > 0) records_flush(r);
        if (r->used + n > r->room) {
            r->room = 2 * (r->used + n);
            r->tokens = memory_resize(r->tokens, r->room);
        }
    }
    return r->tokens + r->used;
}

void records_add(struct records *r, size_t n) {
    r->used += n * (size_t)r->token_bytes;
    r->n_tokens += (int64_t)n;
}

void records_end(struct records *r, const void *name, size_t n) {
    char made[32];
    if (r->n == r->n_room) {
        r->n_room = 2 * r->n_room + 16;
        r->length = memory_resize(r->length, (size_t)r->n_room * sizeof *r->length);
    }
    if (n == 0 || n > RECORD_NAME_BYTES) r->report.renamed_records++;
    if (n == 0) {
        n = (size_t)snprintf(made, sizeof made, "record_%lld", (long long)r->n + 1);
        name = made;
    }
    if (n > RECORD_NAME_BYTES) /* not within a character of UTF-8 */
        for (n = RECORD_NAME_BYTES; n > 1 && (((const unsigned char *)name)[n] & 0xc0) == 0x80;)
            n--;
    if (r->names_bytes + n + 1 > r->names_room) {
        r->names_room = 2 * (r->names_bytes + n + 1);
        r->names = memory_resize(r->names, r->names_room);
    }
    memcpy(r->names + r->names_bytes, name, n);
    r->names[r->names_bytes + n] = 0;
    r->names_bytes += n + 1;
    r->length[r->n] = r->n_tokens - r->start;
    r->report.empty_records += r->length[r->n] == 0;
    r->n++;
    r->start = r->n_tokens;
}
