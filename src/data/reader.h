/* A text file as lines with their place: plain, gzip, multi-member gzip and bgzip alike, streaming.
 * Line ends are LF, CRLF or CR. A byte-order mark is skipped. Files that are no text are recognised
 * and refused.
 *
 * Nothing here ends the program: the first failure is kept (reader_error), and from then on there
 * is no more text. A failure reads "PATH:LINE:COLUMN: what was seen"; lines and columns count from
 * 1, columns in bytes. */
#ifndef REGULON_DATA_READER_H
#define REGULON_DATA_READER_H
#include <stddef.h>
#include <stdint.h>

struct reader;

enum reader_mode {
    READER_TEXT,
    READER_BYTES, /* the file as it lies: nothing is recognised, skipped or decompressed */
};

/* A line, or a piece of a long one. */
struct piece {
    const unsigned char *text; /* [n], borrowed until the next call; without the line's end */
    size_t n;
    int first, last; /* the line begins, ends with this piece; an empty last piece may follow */
    int64_t line, column; /* of text[0] */
};

/* Never NULL. reader_close frees everything, the error text too. */
struct reader *reader_open(const char *path, enum reader_mode mode);

/* The same over data[n] (borrowed) called `name`, handed out in slices of at most `slice` bytes (0:
 * as files are): a small one puts the seams anywhere. */
struct reader *reader_open_memory(const void *data, size_t n, const char *name, size_t slice,
                                  enum reader_mode mode);
void reader_close(struct reader *r);

/* The first bytes of the text, up to 512; what reader_piece gives is not changed by it. */
const unsigned char *reader_peek(struct reader *r, size_t *n);

int reader_piece(struct reader *r, struct piece *p); /* 1, or 0: the end, or a failure */
int reader_line(struct reader *r, struct piece *p);  /* the same with whole lines, however long */
int reader_slice(struct reader *r, const unsigned char **data,
                 size_t *n); /* READER_BYTES: a stretch of the file; its
                                size is a multiple of 8 but at the end */

/* Keeps "PATH:LINE:COLUMN: text" as the failure, unless there is one already. reader_fail_file:
 * without a place. */
void reader_fail(struct reader *r, int64_t line, int64_t column, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void reader_fail_file(struct reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *reader_error(const struct reader *r); /* NULL: none so far */
int reader_error_code(
    const struct reader *r); /* enum exit_code: EXIT_DATA, or EXIT_IO where the system failed */

/* What a byte looks like in a message: 'x', or "byte 0x07". Into buf. */
char *reader_show(char buf[16], unsigned char c);

const char *reader_path(const struct reader *r);
int64_t reader_lines(const struct reader *r);      /* lines ended so far */
int64_t reader_cr_ends(const struct reader *r);    /* of them by CR or CRLF */
int reader_final_newline(const struct reader *r);  /* at the end: the last line had an end */
int64_t reader_file_bytes(const struct reader *r); /* read so far, of the file as it lies */
int64_t reader_modified(const struct reader *r);   /* of the file, ns since 1970 */
void reader_checksum(const struct reader *r,
                     char hex[33]); /* XXH3-128 of what was read, as xxh128sum prints it */
#endif
