/* FASTA and four-line FASTQ, strict: no base is dropped, added or merged silently. Letters and * -
 * . are tokens (with the alphabet `bytes` every visible byte is); spaces inside a sequence are
 * dropped and counted; a record's name is the first word of its header. Refused with their place:
 * text before the first record, lines that begin with ';', NUL, '>' in mid-line and everything else
 * that is no letter.
 *
 * Both read to the end of r and add records of one-byte tokens to `out`; on a failure they return
 * early and reader_error(r) says why. */
#ifndef REGULON_DATA_FASTA_H
#define REGULON_DATA_FASTA_H
#include "config/config.h"
#include "data/reader.h"
#include "data/records.h"

void fasta_parse(struct reader *r, enum alphabet_kind alphabet, struct records *out);
void fasta_parse_fastq(struct reader *r, enum alphabet_kind alphabet, struct records *out);
#endif
