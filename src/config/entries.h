/* What a file or the command line says, flat and in order: dotted key, value as text, line. Decks,
 * config.json and key=value words all become such a list before anything is understood. */
#ifndef REGULON_CONFIG_ENTRIES_H
#define REGULON_CONFIG_ENTRIES_H
#include <stddef.h>

enum entry_kind {
    ENTRY_VALUE,     /* key: value */
    ENTRY_MAP,       /* a section opens; its keys follow */
    ENTRY_EMPTY_MAP, /* a section without keys */
    ENTRY_EMPTY_LIST,
};

struct entry {
    char *key;   /* "optimizer.lr"; items of a list are "dataset.sources[0].path" */
    char *value; /* NULL: null, or not a value */
    int line;    /* from 1; 0: not known */
    enum entry_kind kind;
};

struct entries {
    const char *name; /* of the source, for messages; borrowed */
    const char
        *folder; /* relative paths are relative to it; NULL: they stay as they are; borrowed */
    struct entry *entry;
    size_t n, room;
};

/* Copies key and value. */
void entries_add(struct entries *e, enum entry_kind kind, const char *key, const char *value,
                 int line);
void entries_free(struct entries *e);

/* "KEY: PROBLEM (NAME:LINE)", a new string; `problem` is freed. */
char *entries_error(const struct entries *e, const char *key, int line, char *problem);

/* `s` for a message: control characters become '?', more than 60 bytes are cut off with "...". A
 * new string. */
char *entries_quote(const char *s);
#endif
