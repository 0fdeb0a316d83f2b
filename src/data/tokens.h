/* One character is one token: its ASCII code, vocabulary 256. What counts as a target is the
 * alphabet's say. */
#ifndef REGULON_DATA_TOKENS_H
#define REGULON_DATA_TOKENS_H
#include "config/config.h"

enum token { TOKEN_EOS = 0, TOKEN_PAD = 1, TOKEN_BOS = 2, TOKEN_UNK = 3, TOKEN_FIRST_TEXT = 4 };

/* "dna", "rna", "protein", "bytes", and back; -1 if it is none of them. */
const char *tokens_alphabet_name(enum alphabet_kind alphabet);
int tokens_alphabet(const char *name);

/* The letters that are targets, in upper case: "ACGT", "ACGU", the twenty amino acids, or "" for
 * bytes (all of 4..255 are targets). */
const char *tokens_letters(enum alphabet_kind alphabet);

/* The letters that are no surprise in such a sequence: targets and degenerate codes (IUPAC-IUB,
 * NC-IUB 1984; IUPAC-IUB JCBN 1983), in upper case; "" for bytes. */
const char *tokens_usual_letters(enum alphabet_kind alphabet);

/* complement[256] for dna and rna, IUPAC codes and case kept, every other byte itself; NULL for the
 * others. */
const unsigned char *tokens_complement(enum alphabet_kind alphabet);
#endif
