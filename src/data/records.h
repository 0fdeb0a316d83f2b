/* What parsers put out: tokens one after the other, cut into named records, and what they met on
 * the way. */
#ifndef REGULON_DATA_RECORDS_H
#define REGULON_DATA_RECORDS_H
#include <stddef.h>
#include <stdint.h>

/* What was read, kept, dropped and renamed; the report of `regulon pack`. */
struct pack_report {
    int64_t files, records, tokens, empty_records, duplicate_names, dropped_spaces, lowercase,
        other_letters;
    int64_t renamed_records; /* without a name, or with one over RECORD_NAME_BYTES, which is cut */
    int64_t blank_lines, cr_line_ends;
    int64_t ragged_lines; /* lines of another width than the first of their record, short last ones
                             aside */
    int64_t unfinished_lines; /* files whose last line (or record of tokens) has no end */
    int64_t composition[256]; /* how often each token occurs; zeros where tokens are not bytes */
    int64_t bytes_in;         /* of the files as they lie on disk */
    double seconds;
};

enum { RECORD_NAME_BYTES = 255 };

struct records {
    int token_bytes;  /* 1, 2 or 4 */
    int fd;           /* >= 0: tokens are written there as they come; -1: they stay in `tokens` */
    const char *path; /* of fd, borrowed */
    char *error;      /* why it could not be written, NULL: it could */
    unsigned char *tokens;
    size_t used, room;  /* bytes of `tokens` */
    int64_t n_tokens;   /* all that came, written ones too */
    uint32_t max_token; /* known after records_flush */
    int64_t n, n_room, start;
    int64_t *length; /* [n] tokens */
    char *names;     /* n strings, each with its NUL */
    size_t names_bytes, names_room;
    struct pack_report report;
};

struct records *records_new(int token_bytes, int fd, const char *path);
void records_free(struct records *r);

/* Room for n more tokens, of which records_add then says how many there are. */
unsigned char *records_room(struct records *r, size_t n);
void records_add(struct records *r, size_t n);

/* The tokens since the last record are a record of this name (the first n bytes; no NUL in them).
 */
void records_end(struct records *r, const void *name, size_t n);

/* Counts what is in the buffer and, where there is a file, writes it. Without one: call it once, at
 * the end. */
void records_flush(struct records *r);

/* Writes to the file behind the tokens; the first failure stays in r->error, nothing is written
 * after it. */
void records_write(struct records *r, const void *data, size_t bytes);
#endif
