/* Small helpers for words and numbers that people read and write. None depends on the locale. */
#ifndef REGULON_BASE_TEXT_H
#define REGULON_BASE_TEXT_H
#include <stddef.h>
#include <stdint.h>

/* The entry of words[n] nearest to `word` by edit distance, or NULL when none is near enough to be
 * meant. */
const char *text_nearest(const char *word, const char *const *words, size_t n);

/* Whole numbers and finite reals, the whole string, no spaces; 1 on success, 0 otherwise. */
int text_to_int(const char *s, int64_t *value);
int text_to_uint(const char *s, uint64_t *value);
int text_to_real(const char *s, double *value);

/* A finite real with the fewest digits that text_to_real reads back to the same bits: "0.1",
 * "1.0e-05". */
char *text_real(char *buf, size_t size, double x);

/* Bytes of the UTF-8 character at s, and its code point; 0 at the end of s and where s is not
 * UTF-8. */
int text_utf8(const char *s, uint32_t *code);

/* "1.50 GB", "12.3 M", "1 h 02 min": into buf, which is returned. */
char *text_bytes(char *buf, size_t size, double bytes);
char *text_count(char *buf, size_t size, double n);
char *text_duration(char *buf, size_t size, double seconds);
#endif
