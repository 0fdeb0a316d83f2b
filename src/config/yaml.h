/* YAML text, as decks use it, to a flat list of entries. Strict: one document, a mapping at its
 * root, no anchors, aliases or tags, at most 6 levels and keys of 200 bytes. */
#ifndef REGULON_CONFIG_YAML_H
#define REGULON_CONFIG_YAML_H
#include "config/entries.h"

/* Appends to *e what text[bytes] says. NULL, or what is wrong and where: a new string. Never ends
 * the program, whatever the text. */
char *yaml_to_entries(const char *text, size_t bytes, struct entries *e);
#endif
