/* Between the text of a value and the member of struct config that holds it. */
#ifndef REGULON_CONFIG_VALUE_H
#define REGULON_CONFIG_VALUE_H
#include "config/fields.h"

/* Sets the member; value NULL means null. Relative paths are put behind `folder` unless that is
 * NULL. NULL, or what is wrong with the value: a new string. Not for FIELD_SOURCES. */
char *value_set(struct config *c, const struct field *f, const char *value, const char *folder);

/* Adds a word to a FIELD_WORDS. As value_set. */
char *value_add_word(struct config *c, const struct field *f, const char *word);

/* Sets part ("path" or "weight") of source i, which may be the next new one. As value_set. */
char *value_set_source(struct config *c, size_t i, const char *part, const char *value,
                       const char *folder);
void value_clear_sources(struct config *c);

/* Frees what the member owns. */
void value_free(struct config *c, const struct field *f);

/* The value as YAML that value_set takes back; a new string. Texts are quoted where `quoted`. */
char *value_text(const struct config *c, const struct field *f, int quoted);
char *value_source_text(const struct config_source *s);
#endif
