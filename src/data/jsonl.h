/* JSON lines: an object a line (RFC 8259, UTF-8), one of whose fields holds the sequence. Every
 * byte of it is a token as it stands; those below 4 are control tokens and are refused. The
 * record's name is the string field "id" where there is one, else FILE:LINE. Blank lines are
 * counted.
 *
 * A scanner of our own, since libjansson 2.14 reads 42 MB/s of such lines (2026-11-29, gunzip:
 * 140). */
#ifndef REGULON_DATA_JSONL_H
#define REGULON_DATA_JSONL_H
#include "data/reader.h"
#include "data/records.h"

/* Reads to the end of r and adds records of one-byte tokens; on a failure it returns early and
 * reader_error(r) says why. */
void jsonl_parse(struct reader *r, const char *field, struct records *out);
#endif
