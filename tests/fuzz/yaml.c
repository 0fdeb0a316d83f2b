/* Any bytes as a deck: refused with a text, or a configuration that config_write turns into a deck
 * of the same configuration. Reads no file. */
#include "config.h"
#include "fuzz.h"
#include "base/memory.h"
#include "config/build.h"
#include "config/config.h"
#include <stdlib.h>
#include <string.h>

static char *written(const struct config *c, size_t *bytes) {
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    if (!out) abort();
    config_write(c, out);
    fclose(out);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct config *c = NULL, *d = NULL;
    char *error = build_parse((const char *)data, bytes, "fuzz.yaml", &c);
    if (error) {
        if (error[0] == 0 || strchr(error, '\n')) abort(); /* one line that says something */
        memory_free(error);
        return 0;
    }
    size_t n, m;
    char *text = written(c, &n);
    if (build_parse(text, n, "written.yaml", &d) != NULL) abort();
    char *again = written(d, &m);
    if (n != m || memcmp(text, again, n) != 0) abort();
    free(text);
    free(again);
    config_free(c);
    config_free(d);
    return 0;
}
