/* One character is one token: its ASCII code, vocabulary 256. What counts as a target is the
 * alphabet's say. */
#ifndef REGULON_DATA_TOKENS_H
#define REGULON_DATA_TOKENS_H
#include "config/config.h"

enum token { TOKEN_EOS = 0, TOKEN_PAD = 1, TOKEN_BOS = 2, TOKEN_UNK = 3 };

/* The letters that are targets, in upper case: "ACGT", "ACGU", the twenty amino acids, or "" for
 * bytes (all of 4..255 are targets). */
const char *tokens_letters(enum alphabet_kind alphabet);

/* complement[256] for dna and rna, IUPAC codes and case kept, every other byte itself; NULL for the
 * others. */
const unsigned char *tokens_complement(enum alphabet_kind alphabet);
#endif
