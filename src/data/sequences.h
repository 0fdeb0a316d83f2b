/* The records of one file in the memory of every rank, as a corpus. */
#ifndef REGULON_DATA_SEQUENCES_H
#define REGULON_DATA_SEQUENCES_H
#include "config/config.h"
#include "data/corpus.h"
#include "grid/grid.h"

/* Reads FASTA, FASTQ or JSON lines, plain or gzip, by c->dataset.alphabet and text_field, on rank
 * 0, and gives them to all; or maps a packed corpus. Records may be empty, but not all of them.
 * die_user (65) on bad data, on letters of another alphabet, and on tokens that c->model does not
 * have. Collective over g's world; sequences_free frees it. */
struct corpus *sequences_read(const char *path, const struct config *c, const struct grid *g);
void sequences_free(struct corpus *c);
#endif
