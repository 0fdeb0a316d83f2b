/* A Hugging Face Mixtral config.json as entries of section model. */
#ifndef REGULON_CONFIG_HF_H
#define REGULON_CONFIG_HF_H
#include "config/entries.h"

/* Appends what text[bytes], named `name` in messages, says about the model. NULL, or what Regulon
 * does not do or cannot read: a new string. Keys that change nothing are passed over; unknown ones
 * are warned of. */
char *hf_to_entries(const char *text, size_t bytes, const char *name, struct entries *e);
#endif
