/* Which experts each held-out base went to: what `regulon eval --routing` writes, HDF5 that
 * docs/formats.md describes. Rank 0. */
#ifndef REGULON_SCORE_ROUTING_FILE_H
#define REGULON_SCORE_ROUTING_FILE_H
#include "score/bases.h"
#include "train/run.h"

struct routing_file;

/* The file is begun at `path`, with the bases themselves; die_user (64, 74) when it cannot be.
 * `model`: its name for the file. All borrowed until routing_file_close. */
struct routing_file *routing_file_open(const char *path, const char *model,
                                       const struct run_data *d, const struct config *c);

/* experts and weights as of bases_take. */
void routing_file_add(struct routing_file *f, const struct stretch *s, const uint16_t *experts,
                      const float *weights);
void routing_file_close(struct routing_file *f); /* the file appears */
#endif
