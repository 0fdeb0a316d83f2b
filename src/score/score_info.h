/* The formats of the files of score and embed, and what `regulon info` says of one. */
#ifndef REGULON_SCORE_SCORE_INFO_H
#define REGULON_SCORE_SCORE_INFO_H
#include <stdio.h>

#define SCORES_FORMAT "regulon scores"
#define EMBEDDINGS_FORMAT "regulon embeddings"
enum { SCORES_VERSION = 1, EMBEDDINGS_VERSION = 1 };

/* die_user (65) where it is not of this format, or newer. One rank. */
void score_info(const char *path, const char *format, FILE *out);
#endif
