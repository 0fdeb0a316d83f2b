#include "config.h"
#include "data/tokens.h"
#include <stddef.h>
#include <string.h>

static const struct {
    const char *name, *letters, *usual;
} alphabets[] = {
    [ALPHABET_DNA] = {"dna", "ACGT", "ACGTRYSWKMBDHVN"},
    [ALPHABET_RNA] = {"rna", "ACGU", "ACGURYSWKMBDHVN"},
    [ALPHABET_PROTEIN] = {"protein", "ACDEFGHIKLMNPQRSTVWY", "ACDEFGHIKLMNPQRSTVWYBJOUXZ"},
    [ALPHABET_BYTES] = {"bytes", "", ""},
};
enum { N_ALPHABETS = sizeof alphabets / sizeof *alphabets };

const char *tokens_alphabet_name(enum alphabet_kind a) {
    return alphabets[a].name;
}

int tokens_alphabet(const char *name) {
    for (int a = 0; a < N_ALPHABETS; a++)
        if (strcmp(alphabets[a].name, name) == 0) return a;
    return -1;
}

const char *tokens_letters(enum alphabet_kind a) {
    return alphabets[a].letters;
}
const char *tokens_usual_letters(enum alphabet_kind a) {
    return alphabets[a].usual;
}

/* Rows of 16: @A..O, P..Z[\]^_ and the same in lower case; A pairs with `pair_of_a`, and both T and
 * U with A. */
#define ROWS_0_3                                                                                  \
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, \
        26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,   \
        48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63
#define ROW_8(h)                                                                              \
    h, h + 1, h + 2, h + 3, h + 4, h + 5, h + 6, h + 7, h + 8, h + 9, h + 10, h + 11, h + 12, \
        h + 13, h + 14, h + 15
#define COMPLEMENT(upper, lower)                                                                   \
    {                                                                                              \
        ROWS_0_3, '@', upper, 'V', 'G', 'H', 'E', 'F', 'C', 'D', 'I', 'J', 'M', 'L', 'K', 'N',     \
            'O', 'P', 'Q', 'Y', 'S', 'A', 'A', 'B', 'W', 'X', 'R', 'Z', '[', '\\', ']', '^', '_',  \
            '`', lower, 'v', 'g', 'h', 'e', 'f', 'c', 'd', 'i', 'j', 'm', 'l', 'k', 'n', 'o', 'p', \
            'q', 'y', 's', 'a', 'a', 'b', 'w', 'x', 'r', 'z', '{', '|', '}', '~', 127, ROW_8(128), \
            ROW_8(144), ROW_8(160), ROW_8(176), ROW_8(192), ROW_8(208), ROW_8(224), ROW_8(240)     \
    }

const unsigned char *tokens_complement(enum alphabet_kind a) {
    static const unsigned char dna[256] = COMPLEMENT('T', 't'), rna[256] = COMPLEMENT('U', 'u');
    return a == ALPHABET_DNA ? dna : a == ALPHABET_RNA ? rna : NULL;
}
