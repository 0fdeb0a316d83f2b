#include "config.h"
#include "data/spool.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/fasta.h"
#include "data/jsonl.h"
#include "data/pack.h"
#include "data/reader.h"
#include "data/ready.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void pack_parse(struct reader *r, const struct pack_options *o, struct records *out) {
    size_t n, i = 0;
    const unsigned char *text = reader_peek(r, &n);
    while (i < n && memchr(" \t\r\n", text[i], 4)) i++;
    if (o->jsonl || (i < n && text[i] == '{'))
        jsonl_parse(r, o->text_field, out);
    else if (i < n && text[i] == '@')
        fasta_parse_fastq(r, o->alphabet, out);
    else
        fasta_parse(r, o->alphabet, out);
}

/* Behind the tokens, padded to 8 bytes: lengths, names, summary. */
static void write_table(struct reader *r, struct records *out) {
    static const char zeros[8];
    struct spool_summary s = {.n_tokens = out->n_tokens,
                              .n_records = out->n,
                              .names_bytes = (int64_t)out->names_bytes,
                              .bytes = reader_file_bytes(r),
                              .modified = reader_modified(r),
                              .max_token = out->max_token,
                              .report = out->report};
    reader_checksum(r, s.checksum);
    records_write(out, zeros, (size_t)(-(out->n_tokens * out->token_bytes) & 7));
    records_write(out, out->length, (size_t)out->n * sizeof *out->length);
    records_write(out, out->names, out->names_bytes);
    records_write(out, &s, sizeof s);
}

char *spool_make(const char *path, const char *spool, const struct pack_options *o, int *code) {
    int fd = open(spool, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) die_io("cannot create %s: %s", spool, strerror(errno));
    struct reader *r = reader_open(path, o->token_bytes ? READER_BYTES : READER_TEXT);
    struct records *out = records_new(o->token_bytes ? o->token_bytes : 1, fd, spool);
    if (o->token_bytes)
        ready_parse(r, (uint32_t)o->eos, out);
    else
        pack_parse(r, o, out);
    char *error = reader_error(r) ? memory_string(reader_error(r)) : NULL;
    *code = reader_error_code(r);
    if (!error) {
        records_flush(out);
        write_table(r, out);
    }
    if (close(fd) != 0 && !out->error)
        out->error = memory_format("cannot write %s: %s", spool, strerror(errno));
    if (!error && out->error) error = memory_string(out->error), *code = EXIT_IO;
    records_free(out);
    reader_close(r);
    return error;
}

struct spool *spool_open(const char *path) {
    struct spool *s = memory_alloc(sizeof *s);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int64_t bytes = file_size(path);
    if (fd < 0 || bytes < (int64_t)sizeof s->summary)
        die_io("cannot read %s back: does every rank see this folder?", path);
    s->map_bytes = (size_t)bytes;
    s->map = mmap(NULL, s->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (s->map == MAP_FAILED) die_io("cannot map %s into memory: %s", path, strerror(errno));
    close(fd);
    const char *end = (const char *)s->map + s->map_bytes - sizeof s->summary;
    memcpy(&s->summary, end, sizeof s->summary);
    s->tokens = s->map;
    s->names = end - s->summary.names_bytes;
    s->length = (const void *)(s->names - s->summary.n_records * (int64_t)sizeof *s->length);
    return s;
}

void spool_close(struct spool *s) {
    munmap(s->map, s->map_bytes);
    memory_free(s);
}
