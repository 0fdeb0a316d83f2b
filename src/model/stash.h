/* The size of the stash in which all layers keep the rows of this rank's experts, and their z, one
 * behind the other (router.capacity). How many rows come to a rank only the device knows: arrays of
 * its own would have to hold the most that a layer can get, ep_size times those of even routing. */
#ifndef REGULON_MODEL_STASH_H
#define REGULON_MODEL_STASH_H
#include "model/model.h"

/* Rows of an array for n layers; 0 for none. most: moe_rows. It holds router.capacity times the
 * rows of even routing and all that may pad them; one layer, whatever is routed there; and never
 * more than n layers can get. */
size_t stash_rows(const struct model *m, int n, size_t most);

/* The least router.capacity, rounded up to 0.01, with which that array would hold so many rows. */
double stash_capacity(const struct model *m, int n, double rows);
#endif
