#include "config.h"
#include "hand.h"
#include "base/memory.h"
#include "base/random.h"
#include "data/tokens.h"
#include <string.h>

/* A corpus whose records lie one after the other, with a gap of one token between them. */
static struct corpus *lay_out(const int64_t *lengths, int n_records, int token_bytes) {
    struct corpus *c = memory_alloc(sizeof *c);
    c->path = memory_string("by-hand.h5");
    c->token_bytes = token_bytes;
    c->alphabet = token_bytes == 1 ? ALPHABET_DNA : ALPHABET_BYTES;
    c->ready = token_bytes > 1;
    c->eos = c->ready ? 99 : TOKEN_EOS;
    c->n_records = n_records;
    c->offset = memory_alloc_array((size_t)n_records, sizeof *c->offset);
    c->length = memory_alloc_array((size_t)n_records, sizeof *c->length);
    for (int r = 0; r < n_records; r++) {
        c->offset[r] = c->n_tokens + r;
        c->length[r] = lengths[r];
        c->n_tokens += lengths[r];
    }
    c->map = memory_alloc_array((size_t)(c->n_tokens + n_records), (size_t)token_bytes);
    c->tokens = c->map;
    return c;
}

struct corpus *hand_text(const char *const *records, int n_records) {
    int64_t *lengths = memory_alloc_array((size_t)n_records, sizeof *lengths);
    for (int r = 0; r < n_records; r++) lengths[r] = (int64_t)strlen(records[r]);
    struct corpus *c = lay_out(lengths, n_records, 1);
    for (int r = 0; r < n_records; r++)
        memcpy((char *)c->map + c->offset[r], records[r], (size_t)lengths[r]);
    memory_free(lengths);
    return c;
}

struct corpus *hand_numbered(const int64_t *lengths, int n_records, int token_bytes) {
    struct corpus *c = lay_out(lengths, n_records, token_bytes);
    uint32_t next = 100;
    for (int r = 0; r < n_records; r++)
        for (int64_t i = c->offset[r]; i < c->offset[r] + lengths[r]; i++, next++) {
            if (token_bytes == 2)
                ((uint16_t *)c->map)[i] = (uint16_t)next;
            else
                ((uint32_t *)c->map)[i] = next;
        }
    return c;
}

struct corpus *hand_random(const int64_t *lengths, int n_records, const char *letters,
                           uint64_t seed) {
    struct corpus *c = lay_out(lengths, n_records, 1);
    uint64_t n = strlen(letters), i = 0;
    for (int r = 0; r < n_records; r++)
        for (int64_t j = 0; j < lengths[r]; j++)
            ((char *)c->map)[c->offset[r] + j] = letters[random_bits(seed, RANDOM_TEST, i++) % n];
    return c;
}

void hand_free(struct corpus *c) {
    memory_free(c->path);
    memory_free(c->offset);
    memory_free(c->length);
    memory_free(c->map);
    memory_free(c);
}

struct config hand_config(int64_t T, int64_t stride, int64_t capacity) {
    struct config c = {.seed = 1, .grad_acc_steps = 1};
    c.dataset.max_seq_length = T;
    c.dataset.stride = stride;
    c.dataset.token_micro_batch_size = capacity;
    c.dataset.mask_degenerate_bases = 1;
    c.dataset.lowercase_weight = 1;
    c.dataset.holdout_block = 8192;
    c.dataset.read_ahead = 2;
    return c;
}
