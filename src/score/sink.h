/* Where a result goes: stdout, or a file that appears under its name when it is whole. Rank 0. */
#ifndef REGULON_SCORE_SINK_H
#define REGULON_SCORE_SINK_H
#include <stdio.h>

struct sink {
    FILE *out;       /* NULL: only the name is kept, for who writes the file otherwise */
    char *path;      /* NULL: stdout */
    char *temporary; /* the name until then */
};

/* die_user (74) when it cannot be made, 64 where a device or a folder is. text 0: the file is made,
 * and closed again. If the program leaves before sink_close the file goes. */
void sink_open(struct sink *s, const char *path, int text);
void sink_close(struct sink *s); /* die_io when not all of it could be written */

/* `name` as a JSON string, quotes and all; bytes that are no UTF-8 are taken for Latin-1. */
void sink_json(struct sink *s, const char *name);

/* `name` as a column: a tab, and what else would end it, is a blank. */
void sink_tsv(struct sink *s, const char *name);

/* x with six decimals, or `none` for NaN. */
void sink_real(struct sink *s, double x, const char *none);
#endif
