/* Corpora and settings made by hand, for the tests of the data path. */
#ifndef REGULON_TESTS_HAND_H
#define REGULON_TESTS_HAND_H
#include "config/config.h"
#include "data/corpus.h"

/* Records of text; borrowed strings are copied. */
struct corpus *hand_text(const char *const *records, int n_records);

/* Ready tokens of `token_bytes`, 100, 101, 102 ... over all records, so that a token says which
 * base it is; EOS is 99. */
struct corpus *hand_numbered(const int64_t *lengths, int n_records, int token_bytes);

/* Random letters of `letters`, one record a length. */
struct corpus *hand_random(const int64_t *lengths, int n_records, const char *letters,
                           uint64_t seed);
void hand_free(struct corpus *c);

/* dna, windows of T tokens that overlap by stride, chunks of `capacity` tokens; nothing else asked
 * for. */
struct config hand_config(int64_t T, int64_t stride, int64_t capacity);
#endif
