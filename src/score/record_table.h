/* The loss by record: what `regulon eval --records` writes, as text or HDF5. Rank 0. */
#ifndef REGULON_SCORE_RECORD_TABLE_H
#define REGULON_SCORE_RECORD_TABLE_H
#include "score/bases.h"
#include "train/run.h"

struct record_table;

/* A row for each record that has bases in the held-out streams. The file is begun at `path`: HDF5
 * where its name ends in .h5, else TSV; die_user (64, 74) when it cannot be. `model`: its name for
 * the file. All borrowed until record_table_close. */
struct record_table *record_table_open(const char *path, const char *model,
                                       const struct run_data *d, const struct config *c);

void record_table_add(struct record_table *t, const struct stretch *s);
void record_table_close(struct record_table *t); /* the file appears */
#endif
