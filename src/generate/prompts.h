/* What `regulon generate` goes on from. */
#ifndef REGULON_GENERATE_PROMPTS_H
#define REGULON_GENERATE_PROMPTS_H
#include "config/config.h"
#include "generate/generator.h"
#include "generate/settings.h"

struct prompts {
    int n;
    struct prompt *list; /* [n] tokens as the model gets them */
    char **names;        /* [n], into name_text */
    int head;            /* 1: BOS is before each of them, else 0 */
    int32_t *tokens;
    char *name_text;
};

/* Reads them on rank 0 and gives them to all; without a prompt it is one, of BOS alone. Mistakes
 * are refused: 64 on the command line, 65 in a file. Collective over MPI_COMM_WORLD. The caller
 * frees with prompts_close. */
void prompts_open(struct prompts *p, const struct settings *o, const struct config *c);
void prompts_close(struct prompts *p);
#endif
