/* Alphabets. */
#include "config.h"
#include "data/tokens.h"
#include <string.h>

const char *tokens_letters(enum alphabet_kind alphabet) {
    static const char *const letters[] = {"ACGT", "ACGU", "ACDEFGHIKLMNPQRSTVWY", ""};
    return letters[alphabet];
}

#define R4(f, i) f(i), f(i + 1), f(i + 2), f(i + 3)
#define R16(f, i) R4(f, i), R4(f, i + 4), R4(f, i + 8), R4(f, i + 12)
#define R64(f, i) R16(f, i), R16(f, i + 16), R16(f, i + 32), R16(f, i + 48)
#define PAIR(x, a, b)                       \
    (x) == (a)          ? (b)               \
    : (x) == (b)        ? (a)               \
    : (x) == ((a) | 32) ? ((b) | 32)        \
                        : (x) == ((b) | 32) \
        ? ((a) | 32)
#define OTHERS(x)     \
    PAIR(x, 'C', 'G') \
        : PAIR(x, 'R', 'Y') : PAIR(x, 'K', 'M') : PAIR(x, 'B', 'V') : PAIR(x, 'D', 'H')
#define DNA(x) (PAIR(x, 'A', 'T') : OTHERS(x) : (x))
#define RNA(x) (PAIR(x, 'A', 'U') : OTHERS(x) : (x))

const unsigned char *tokens_complement(enum alphabet_kind alphabet) {
    static const unsigned char dna[256] = {R64(DNA, 0), R64(DNA, 64), R64(DNA, 128), R64(DNA, 192)};
    static const unsigned char rna[256] = {R64(RNA, 0), R64(RNA, 64), R64(RNA, 128), R64(RNA, 192)};
    return alphabet == ALPHABET_DNA ? dna : alphabet == ALPHABET_RNA ? rna : NULL;
}
