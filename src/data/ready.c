#include "config.h"
#include "data/ready.h"
#include "base/file.h"
#include "base/memory.h"
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token files and corpora are little-endian"
#endif

static uint32_t token_at(const unsigned char *p, size_t i, int bytes) {
    uint16_t two;
    uint32_t four;
    if (bytes == 1) return p[i];
    if (bytes == 2) return memcpy(&two, p + 2 * i, 2), two;
    return memcpy(&four, p + 4 * i, 4), four;
}

static void end_record(const char *file, struct records *out) {
    char *name = memory_format("%s:%lld", file, (long long)out->n + 1);
    records_end(out, name, strlen(name));
    memory_free(name);
}

void ready_parse(struct reader *r, uint32_t eos, struct records *out) {
    const char *file = file_basename(reader_path(r));
    const unsigned char *data;
    size_t bytes, width = (size_t)out->token_bytes;
    int pending = 0; /* tokens since the last EOS */
    while (reader_slice(r, &data, &bytes)) {
        size_t n = bytes / width;
        if (bytes % width) {
            reader_fail_file(r, "%lld bytes are no whole number of %d-byte tokens",
                             (long long)reader_file_bytes(r), out->token_bytes);
            return;
        }
        for (size_t i = 0; i < n;) {
            size_t from = i;
            while (i < n && token_at(data, i, out->token_bytes) != eos) i++;
            memcpy(records_room(out, i - from), data + width * from, width * (i - from));
            records_add(out, i - from);
            pending |= i > from;
            if (i == n) break;
            end_record(file, out);
            pending = 0;
            i++;
        }
    }
    if (reader_error(r) == NULL && pending) {
        out->report.unfinished_lines++;
        end_record(file, out);
    }
}
