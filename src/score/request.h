/* The command lines of `regulon score` and `regulon embed`. */
#ifndef REGULON_SCORE_REQUEST_H
#define REGULON_SCORE_REQUEST_H
#include "score/strands.h"

enum score_format { FORMAT_TSV, FORMAT_JSONL, FORMAT_H5 };
enum request_verb { VERB_SCORE = 1, VERB_EMBED = 2 };

struct request {
    const char *model, *file, *output, *variants; /* output NULL: stdout */
    enum score_format format;
    int per_base; /* each base: --per-base, --pool none */
    enum strand_kind strand;
    int64_t window, stride; /* 0: not given */
    int64_t layer;          /* -1: the last */
    char **words;           /* [n] key=value */
    int n, help;
};

/* On every rank; rank 0 ends with die_user (64) on what is wrong. words is the caller's to free. */
void request_read(struct request *o, enum request_verb verb, int argc, char **argv);
void request_print_help(enum request_verb verb);
#endif
