/* Any bytes as the header of a safetensors file: refused with a line that says why, or tensors that
 * tile the data exactly. The first two bytes say how much data follow the header. */
#include "config.h"
#include "fuzz.h"
#include "base/memory.h"
#include "checkpoint/safetensors.h"
#include <stdlib.h>
#include <string.h>

static void require(int ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    uint64_t data_bytes = (uint64_t)data[0] << 8 | data[1], end = 0;
    struct safetensors f;
    char *wrong = safetensors_parse((const char *)data + 2, size - 2, data_bytes, &f);
    if (wrong) {
        require(wrong[0] != 0 && f.list == NULL && f.n == 0);
        memory_free(wrong);
        return 0;
    }
    for (int i = 0; i < f.n; i++) {
        const struct safetensor *t = &f.list[i];
        int64_t n = 1;
        require(t->n_dims >= 0 && t->n_dims <= SAFETENSORS_DIMS && t->first == end);
        for (int d = 0; d < t->n_dims; d++) n *= t->dims[d];
        require(n == t->n && safetensors_find(&f, t->name) != NULL);
        end += t->bytes;
    }
    require(end == data_bytes);
    safetensors_clear(&f);
    return 0;
}
