/* What a run is told beside the weights that it begins with. */
#ifndef REGULON_TRAIN_ORIGIN_H
#define REGULON_TRAIN_ORIGIN_H
#include "config/config.h"

/* Warns of keys that no tensor's shape gives away and that are other in c than where the weights
 * come from: the run would go on with another function of the same weights. from:
 * checkpoint.init_from; folder: what checkpoint_find_weights found in it. One rank. */
void origin_compare(const struct config *c, const char *from, const char *folder);
#endif
