/* The table of keys: what config.h's struct holds, as people write it. */
#ifndef REGULON_CONFIG_FIELDS_H
#define REGULON_CONFIG_FIELDS_H
#include "config/config.h"
#include <stddef.h>

enum field_type {
    FIELD_INT,     /* int64_t */
    FIELD_UINT,    /* uint64_t */
    FIELD_REAL,    /* double */
    FIELD_BOOL,    /* int */
    FIELD_ENUM,    /* int, the place in `words` */
    FIELD_TEXT,    /* char * */
    FIELD_PATH,    /* char *, made absolute when read */
    FIELD_WORDS,   /* char *, words with a blank between them; in YAML also a list of words */
    FIELD_SOURCES, /* dataset.sources and n_sources */
};

/* Limits that do not belong to the range themselves. */
enum field_range { RANGE_ABOVE_MIN = 1, RANGE_BELOW_MAX = 2 };

struct field {
    const char *key; /* also the name of the member in struct config */
    enum field_type type;
    size_t offset;       /* in struct config */
    const char *initial; /* the default as text; NULL: the key is required */
    double min, max;     /* FIELD_INT, FIELD_REAL */
    unsigned range;      /* enum field_range */
    const char *zero;    /* the word for 0 or NULL ("null", "auto", "all"), or NULL */
    const char *unit;    /* NULL where there is none */
    const char *words;   /* FIELD_ENUM: "auto|cpu|cuda", in the order of the enum */
    const char *sentence;
};

extern const struct field fields[];
extern const size_t n_fields;

/* The field of this key, or NULL. bytes: length of the key. */
const struct field *field_find(const char *key, size_t bytes);

/* 1 if `name` is a section: the part of a key before its last dot. */
int field_is_section(const char *name);

/* The key nearest to a word that is none, or NULL when none is near enough to be meant. */
const char *field_nearest(const char *word);

/* "1 to 64", "0 or more", "above 0 to 1", "auto | cpu | cuda" into buf; "" where the type says it
 * all. */
char *field_range(char *buf, size_t size, const struct field *f);

/* What a user calls the type: "whole number", "number", "true or false", "word", "text", "path",
 * "list". */
const char *field_type_name(const struct field *f);
#endif
