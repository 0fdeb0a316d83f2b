/* The words of `regulon generate`. */
#ifndef REGULON_GENERATE_SETTINGS_H
#define REGULON_GENERATE_SETTINGS_H
#include "generate/sample.h"

struct settings {
    const char *model;   /* a run folder or one of its step folders */
    const char *prompt;  /* text; NULL: none */
    const char *prompts; /* a FASTA file; NULL: none */
    const char *output;  /* a file; NULL: stdout */
    int64_t count, length;
    struct sampling sampling;
    uint64_t seed;
    int all_letters; /* else the alphabet's plain ones */
    int no_bos;
    int with_prompt;
    int help;
    char **words; /* [n_words] key=value */
    int n_words;
};

extern const char settings_help[];

/* Reads the words; any rank. Returns NULL, or what is wrong with them, to be freed by the caller.
 * Strings are borrowed from argv; the caller frees o->words. */
char *settings_read(struct settings *o, int argc, char **argv);
#endif
