#include "config.h"
#include "config/entries.h"
#include "base/memory.h"
#include <string.h>

void entries_add(struct entries *e, enum entry_kind kind, const char *key, const char *value,
                 int line) {
    if (e->n == e->room) {
        e->room = e->room ? 2 * e->room : 32;
        e->entry = memory_resize(e->entry, e->room * sizeof *e->entry);
    }
    e->entry[e->n++] = (struct entry){memory_string(key), memory_string(value), line, kind};
}

void entries_free(struct entries *e) {
    for (size_t i = 0; i < e->n; i++) {
        memory_free(e->entry[i].key);
        memory_free(e->entry[i].value);
    }
    memory_free(e->entry);
    e->entry = NULL;
    e->n = e->room = 0;
}

char *entries_error(const struct entries *e, const char *key, int line, char *problem) {
    char *shown = entries_quote(key);
    char *error = line > 0 ? memory_format("%s: %s (%s:%d)", shown, problem, e->name, line)
                           : memory_format("%s: %s (%s)", shown, problem, e->name);
    memory_free(shown);
    memory_free(problem);
    return error;
}

char *entries_quote(const char *s) {
    enum { MOST = 60 };
    size_t n = strlen(s), cut = n;
    if (n > MOST)
        for (cut = MOST; cut > 0 && ((unsigned char)s[cut] & 0xc0) == 0x80;)
            cut--; /* not inside a character */
    char *shown = memory_format("%.*s%s", (int)cut, s, n > cut ? "..." : "");
    for (char *p = shown; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    return shown;
}
