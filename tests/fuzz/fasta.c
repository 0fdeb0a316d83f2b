/* FASTA and FASTQ from bytes: the first says which parser, alphabet and slice. Whatever the bytes,
 * slices must not matter, tokens are letters that the text holds, and the counts add up. */
#include "config.h"
#include "fuzz.h"
#include "data/fasta.h"
#include <stdlib.h>
#include <string.h>

static struct reader *parse(const uint8_t *data, size_t size, int how, size_t slice,
                            struct records *out) {
    struct reader *r = reader_open_memory(data, size, "x", slice, READER_TEXT);
    enum alphabet_kind alphabet = how & 1 ? ALPHABET_BYTES : ALPHABET_DNA;
    if (how & 2)
        fasta_parse_fastq(r, alphabet, out);
    else
        fasta_parse(r, alphabet, out);
    return r;
}

static void require(int ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    struct records *whole = records_new(1, -1, NULL), *sliced = records_new(1, -1, NULL);
    struct reader *a = parse(data + 1, size - 1, data[0], 0, whole);
    struct reader *b = parse(data + 1, size - 1, data[0], 1 + (data[0] >> 2) % 16, sliced);
    const char *x = reader_error(a), *y = reader_error(b);
    require(!x == !y && (!x || strcmp(x, y) == 0));
    if (!x) {
        require(whole->n == sliced->n && whole->n_tokens == sliced->n_tokens &&
                whole->names_bytes == sliced->names_bytes);
        require(memcmp(whole->tokens, sliced->tokens, (size_t)whole->n_tokens) == 0);
        require(whole->n == 0 || memcmp(whole->names, sliced->names, whole->names_bytes) == 0);
        require(memcmp(&whole->report, &sliced->report, sizeof whole->report) == 0);
        int64_t sum = 0;
        for (int64_t i = 0; i < whole->n; i++) sum += whole->length[i];
        require(sum == whole->n_tokens);
        for (int64_t i = 0; i < whole->n_tokens; i++)
            require(whole->tokens[i] > 32 && whole->tokens[i] != '>');
    }
    reader_close(a);
    reader_close(b);
    records_free(whole);
    records_free(sliced);
    return 0;
}
