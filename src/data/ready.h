/* Ready token files: little-endian numbers of 1, 2 or 4 bytes, records ended by an EOS token, which
 * is not kept. */
#ifndef REGULON_DATA_READY_H
#define REGULON_DATA_READY_H
#include "data/reader.h"
#include "data/records.h"

/* Reads r (READER_BYTES) to its end; tokens are out->token_bytes wide. The records are called
 * FILE:NUMBER, from 1. A last record without EOS is accepted and counted. On a failure
 * reader_error(r) says why. */
void ready_parse(struct reader *r, uint32_t eos, struct records *out);
#endif
