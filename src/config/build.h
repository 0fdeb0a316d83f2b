/* From lists of entries to a struct config: the part of config that knows keys but no files, and
 * never ends the program. Errors come back as new strings. */
#ifndef REGULON_CONFIG_BUILD_H
#define REGULON_CONFIG_BUILD_H
#include "config/config.h"
#include "config/entries.h"

/* All keys at their defaults, required ones 0. The caller frees it with config_free. */
struct config *build_defaults(void);

/* Sets in c what e says, over what is there. Refuses keys that do not exist (naming the nearest, or
 * what a key of the PyTorch recipe is here), keys given twice and values that do not fit.
 * given[n_fields] counts the lists that named a key; NULL if nobody asks. */
char *build_apply(struct config *c, const struct entries *e, unsigned char *given);

/* After the last list: refuses what was required and not given (`where`: the deck's name), sets
 * what follows from other keys, and checks the keys against each other. */
char *build_finish(struct config *c, const unsigned char *given, const char *where);

/* All of it from one text that needs no other file, as config_write makes it. NULL and *out, or an
 * error. Paths stay as they are. Whatever the bytes, it returns. */
char *build_parse(const char *text, size_t bytes, const char *name, struct config **out);
#endif
