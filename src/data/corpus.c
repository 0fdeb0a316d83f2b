/* Stand-in until pack's corpus.c is merged. */
#include "config.h"
#include "data/corpus.h"
#include "base/memory.h"
#include <assert.h>

char *corpus_record_name(const struct corpus *c, int64_t i) {
    (void)c;
    return memory_format("record%lld", (long long)i);
}

void corpus_read(const struct corpus *c, int64_t record, int64_t start, int64_t n, uint32_t *out) {
    assert(start >= 0 && n >= 0 && start + n <= c->length[record]);
    int64_t at = c->offset[record] + start;
    if (c->token_bytes == 1)
        for (int64_t i = 0; i < n; i++) out[i] = ((const uint8_t *)c->tokens)[at + i];
    else if (c->token_bytes == 2)
        for (int64_t i = 0; i < n; i++) out[i] = ((const uint16_t *)c->tokens)[at + i];
    else
        for (int64_t i = 0; i < n; i++) out[i] = ((const uint32_t *)c->tokens)[at + i];
}
