/* The formats of the files of score, embed and eval, and what `regulon info` says of one. */
#ifndef REGULON_SCORE_SCORE_INFO_H
#define REGULON_SCORE_SCORE_INFO_H
#include <stdio.h>

#define SCORES_FORMAT "regulon scores"
#define EMBEDDINGS_FORMAT "regulon embeddings"
#define EVALUATION_FORMAT "regulon evaluation"
#define ROUTING_FORMAT "regulon routing"
enum { SCORES_VERSION = 1, EMBEDDINGS_VERSION = 1, EVALUATION_VERSION = 1, ROUTING_VERSION = 1 };

/* 1 for a format of these. */
int score_info_knows(const char *format);

/* die_user (65) where it is not of this format, or newer. One rank. */
void score_info(const char *path, const char *format, FILE *out);
#endif
