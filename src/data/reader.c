/* Two buffers: `raw` holds the file as it lies, `full` the text (raw itself when nothing is
 * compressed). Text is handed out in slices, in one go but for tests. Within a slice the next LF
 * and the next CR are remembered, so that each is searched once however the lines end. */
#include "config.h"
#include "data/reader.h"
#include "base/die.h"
#include "base/memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

enum { FILE_BUFFER = 256 << 10, MEMORY_BUFFER = 4 << 10, PEEK_BYTES = 512 };

struct reader {
    char *path;
    int fd; /* -1: from memory */
    const unsigned char *memory;
    size_t memory_left;
    int64_t file_bytes, modified;
    XXH3_state_t *hash;

    size_t buffer; /* bytes of raw and inflated */
    unsigned char *raw, *inflated;
    int compressed, in_member, past_end;
    z_stream z;
    char *broken; /* what is wrong with the compressed stream behind the text that was still good */

    const unsigned char *full, *full_end, *at,
        *end;                     /* filled buffer; slice of it being handed out */
    const unsigned char *lf, *cr; /* the next ones in [at, end), or end; NULL: not searched */
    size_t slice;
    int64_t line, column, cr_ends;
    int in_line, skip_lf, final_newline;

    unsigned char *held; /* a line that crosses slices */
    size_t held_room;
    char *error;
    int error_code;
};

static void keep_error(struct reader *r, int code, char *text) {
    if (r->error) {
        memory_free(text);
        return;
    }
    r->error = text;
    r->error_code = code;
}

static char *format_text(const char *format, va_list args) {
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    return memory_string(text);
}

void reader_fail(struct reader *r, int64_t line, int64_t column, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    keep_error(
        r, EXIT_DATA,
        memory_format("%s:%lld:%lld: %s", r->path, (long long)line, (long long)column, text));
    memory_free(text);
}

void reader_fail_file(struct reader *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    keep_error(r, EXIT_DATA, memory_format("%s: %s", r->path, text));
    memory_free(text);
}

char *reader_show(char buf[16], unsigned char c) {
    snprintf(buf, 16, c > 32 && c < 127 ? "'%c'" : "byte 0x%02x", c);
    return buf;
}

/* Fills raw as far as the file goes; returns the bytes. */
static size_t raw_fill(struct reader *r) {
    size_t n = 0;
    if (r->fd < 0) {
        n = r->memory_left < r->buffer ? r->memory_left : r->buffer;
        if (n) memcpy(r->raw, r->memory, n), r->memory += n;
        r->memory_left -= n;
    } else {
        while (n < r->buffer) {
            ssize_t got = read(r->fd, r->raw + n, r->buffer - n);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0)
                keep_error(r, EXIT_IO,
                           memory_format("%s: cannot read at byte %lld: %s", r->path,
                                         (long long)r->file_bytes + (long long)n, strerror(errno)));
            if (got <= 0) break;
            n += (size_t)got;
        }
    }
    r->file_bytes += (int64_t)n;
    XXH3_128bits_update(r->hash, r->raw, n);
    return r->error ? 0 : n;
}

/* Fills `inflated` over as many gzip members as it takes; returns the bytes. A stream that breaks
 * gives its good part first. */
static size_t inflate_fill(struct reader *r) {
    r->z.next_out = r->inflated;
    r->z.avail_out = (uInt)r->buffer;
    while (r->z.avail_out > 0 && !r->broken && !r->past_end) {
        if (r->z.avail_in == 0) {
            r->z.next_in = r->raw;
            r->z.avail_in = (uInt)raw_fill(r);
            if (r->z.avail_in == 0) {
                r->past_end = 1;
                if (r->in_member && !r->error)
                    r->broken = memory_format(
                        "the gzip stream breaks off at the file's end, byte %lld: truncated",
                        (long long)r->file_bytes);
                break;
            }
        }
        if (!r->in_member) inflateReset(&r->z);
        r->in_member = 1;
        int code = inflate(&r->z, Z_NO_FLUSH);
        if (code == Z_STREAM_END)
            r->in_member = 0;
        else if (code == Z_MEM_ERROR)
            die("out of memory in zlib");
        else if (code != Z_OK && code != Z_BUF_ERROR)
            r->broken = memory_format(
                "the gzip stream is corrupt before byte %lld of the file (%s)",
                (long long)(r->file_bytes - r->z.avail_in), r->z.msg ? r->z.msg : "zlib");
    }
    return r->buffer - r->z.avail_out;
}

static void take_buffer(struct reader *r, const unsigned char *data, size_t n) {
    r->full = r->at = r->end = data;
    r->full_end = data + n;
    r->lf = r->cr = NULL;
}

/* Makes [at, end) a new stretch of text; 0 at the end or at a failure. */
static int next_slice(struct reader *r) {
    if (r->error) return 0;
    if (r->end == r->full_end) {
        if (r->compressed)
            take_buffer(r, r->inflated, inflate_fill(r));
        else
            take_buffer(r, r->raw, raw_fill(r));
    }
    if (r->error) return 0; /* a read that fails hides what came with it */
    size_t left = (size_t)(r->full_end - r->end);
    r->at = r->end;
    r->end += r->slice && r->slice < left ? r->slice : left;
    r->lf = r->cr = NULL;
    if (left == 0 && r->broken) reader_fail(r, r->line, r->column, "%s", r->broken);
    return left > 0;
}

/* Files that people have beside their FASTA, told by their first bytes. */
static const struct magic {
    const char *bytes;
    size_t n, offset;
    const char *what;
} magics[] = {
    {"\x43\x27\x41\x1a", 4, 0, "a 2bit file; twoBitToFa makes FASTA of it"},
    {"\x1a\x41\x27\x43", 4, 0, "a 2bit file; twoBitToFa makes FASTA of it"},
    {"\x89HDF\r\n\x1a\n", 8, 0, "an HDF5 file; a packed corpus goes into a deck as it is"},
    {"BAM\1", 4, 0, "a BAM file; samtools fasta makes FASTA of it"},
    {"CRAM", 4, 0, "a CRAM file; samtools fasta makes FASTA of it"},
    {"PAR1", 4, 0, "a Parquet file; write its text column as JSON lines first"},
    {"BZh", 3, 0, "compressed by bzip2; decompress it, or use gzip"},
    {"\xfd\x37zXZ\0", 6, 0, "compressed by xz; decompress it, or use gzip"},
    {"\x28\xb5\x2f\xfd", 4, 0, "compressed by zstd; decompress it, or use gzip"},
    {"\x1f\x9d", 2, 0, "compressed by compress; decompress it, or use gzip"},
    {"PK\3\4", 4, 0, "a zip archive; unpack it first"},
    {"ustar", 5, 257, "a tar archive; unpack it first"},
    {"\x93NUMPY", 6, 0, "a NumPy array; write its bytes with tofile() and pack them with --tokens"},
    {"\xff\xfe", 2, 0, "UTF-16 text; convert it to UTF-8"},
    {"\xfe\xff", 2, 0, "UTF-16 text; convert it to UTF-8"},
    {"\x1f\x8b", 2, 0, "compressed by gzip twice; decompress it once"},
};

static void refuse_foreign(struct reader *r, size_t n_magics) {
    size_t n = (size_t)(r->full_end - r->full);
    for (const struct magic *m = magics; m < magics + n_magics; m++)
        if (n >= m->offset + m->n && memcmp(r->full + m->offset, m->bytes, m->n) == 0)
            return reader_fail_file(r, "%s", m->what);
}

/* The first buffer: what kind of file this is. */
static void begin(struct reader *r, enum reader_mode mode) {
    take_buffer(r, r->raw, raw_fill(r));
    size_t n = (size_t)(r->full_end - r->full), n_magics = sizeof magics / sizeof *magics;
    if (mode == READER_BYTES || r->error) return;
    refuse_foreign(r, n_magics - 1);
    if (r->error) return;
    if (n >= 2 && r->raw[0] == 0x1f && r->raw[1] == 0x8b) {
        if (inflateInit2(&r->z, 15 + 16) != Z_OK) die("out of memory in zlib");
        r->compressed = r->in_member = 1;
        r->z.next_in = r->raw;
        r->z.avail_in = (uInt)n;
        r->inflated = memory_alloc(r->buffer);
        take_buffer(r, r->inflated, inflate_fill(r));
        refuse_foreign(r, n_magics);
    }
    if (r->full_end - r->full >= 3 && memcmp(r->full, "\xef\xbb\xbf", 3) == 0)
        r->at = r->end = r->full + 3;
}

static struct reader *reader_new(const char *path, size_t buffer, size_t slice) {
    struct reader *r = memory_alloc(sizeof *r);
    r->path = memory_string(path);
    r->fd = -1;
    r->buffer = buffer;
    r->slice = slice;
    r->line = r->column = 1;
    r->final_newline = 1;
    r->raw = memory_alloc(r->buffer);
    take_buffer(r, r->raw, 0);
    r->hash = XXH3_createState();
    if (r->hash == NULL) die("out of memory");
    XXH3_128bits_reset(r->hash);
    return r;
}

struct reader *reader_open(const char *path, enum reader_mode mode) {
    struct reader *r = reader_new(path, FILE_BUFFER, 0);
    struct stat s;
    r->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0 || fstat(r->fd, &s) != 0)
        reader_fail_file(r, "cannot be opened: %s", strerror(errno));
    else if (S_ISDIR(s.st_mode))
        reader_fail_file(r, "is a folder");
    if (r->error) return r;
    r->modified = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
    begin(r, mode);
    return r;
}

struct reader *reader_open_memory(const void *data, size_t n, const char *name, size_t slice,
                                  enum reader_mode mode) {
    struct reader *r = reader_new(name, MEMORY_BUFFER, slice);
    r->memory = data;
    r->memory_left = n;
    begin(r, mode);
    return r;
}

void reader_close(struct reader *r) {
    if (r->fd >= 0) close(r->fd);
    if (r->compressed) inflateEnd(&r->z);
    XXH3_freeState(r->hash);
    memory_free(r->held);
    memory_free(r->inflated);
    memory_free(r->raw);
    memory_free(r->broken);
    memory_free(r->error);
    memory_free(r->path);
    memory_free(r);
}

const unsigned char *reader_peek(struct reader *r, size_t *n) {
    size_t left = (size_t)(r->full_end - r->at);
    *n = left < PEEK_BYTES ? left : PEEK_BYTES;
    return r->at;
}

static const unsigned char *find(const unsigned char *from, int c, const unsigned char *end) {
    const unsigned char *found = memchr(from, c, (size_t)(end - from));
    return found ? found : end;
}

/* Steps over the end of a line at r->at. */
static void end_line(struct reader *r) {
    if (*r->at == '\r') r->skip_lf = 1, r->cr_ends++;
    r->at++;
    r->line++;
    r->column = 1;
    r->in_line = 0;
}

int reader_piece(struct reader *r, struct piece *p) {
    while (r->at == r->end || r->skip_lf) {
        if (r->at < r->end) {
            r->at += *r->at == '\n';
            r->skip_lf = 0;
        } else if (!next_slice(r)) {
            if (r->error || !r->in_line) return 0;
            r->in_line = r->final_newline = 0; /* the text ends, and so does its last line */
            *p = (struct piece){r->at, 0, 0, 1, r->line++, r->column};
            r->column = 1;
            return 1;
        }
    }
    if (r->error) return 0;
    if (r->lf < r->at) r->lf = find(r->at, '\n', r->end);
    if (r->cr < r->at) r->cr = find(r->at, '\r', r->end);
    const unsigned char *stop = r->lf < r->cr ? r->lf : r->cr;
    size_t n = (size_t)(stop - r->at);
    *p = (struct piece){r->at, n, !r->in_line, stop < r->end, r->line, r->column};
    r->at = stop;
    r->column += (int64_t)n;
    r->in_line = 1;
    if (p->last) end_line(r);
    return 1;
}

int reader_line(struct reader *r, struct piece *line) {
    if (!reader_piece(r, line)) return 0;
    if (line->last) return 1;
    size_t n = 0;
    for (struct piece p = *line;;) {
        if (n + p.n > r->held_room) r->held = memory_resize(r->held, r->held_room = 2 * (n + p.n));
        if (p.n) memcpy(r->held + n, p.text, p.n);
        n += p.n;
        if (p.last) break;
        if (!reader_piece(r, &p)) return 0;
    }
    line->text = r->held;
    line->n = n;
    line->last = 1;
    return 1;
}

int reader_slice(struct reader *r, const unsigned char **data, size_t *n) {
    if (r->at == r->end && !next_slice(r)) return 0;
    *data = r->at;
    *n = (size_t)(r->end - r->at);
    r->at = r->end;
    return 1;
}

const char *reader_error(const struct reader *r) {
    return r->error;
}
int reader_error_code(const struct reader *r) {
    return r->error_code;
}
const char *reader_path(const struct reader *r) {
    return r->path;
}
int64_t reader_lines(const struct reader *r) {
    return r->line - 1;
}
int64_t reader_cr_ends(const struct reader *r) {
    return r->cr_ends;
}
int reader_final_newline(const struct reader *r) {
    return r->final_newline;
}
int64_t reader_file_bytes(const struct reader *r) {
    return r->file_bytes;
}
int64_t reader_modified(const struct reader *r) {
    return r->modified;
}

void reader_checksum(const struct reader *r, char hex[33]) {
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(r->hash));
    for (int i = 0; i < 16; i++) snprintf(hex + 2 * i, 3, "%02x", bytes.digest[i]);
}
