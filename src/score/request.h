/* The command lines of `regulon score` and `regulon embed`. */
#ifndef REGULON_SCORE_REQUEST_H
#define REGULON_SCORE_REQUEST_H
#include "score/strands.h"
#include "train/trained.h"

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

/* A verb: reads its words (die_user, 64, on what is wrong), prints its help or runs it on the
 * model, which is found and its backend open. Returns the exit code. Collective over
 * MPI_COMM_WORLD. */
int request_run(enum request_verb verb, int argc, char **argv,
                void (*run)(struct trained *t, const struct request *o));
#endif
