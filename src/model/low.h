/* precision.recipe's products in eight bits: of which layers, and whether the devices have them. */
#ifndef REGULON_MODEL_LOW_H
#define REGULON_MODEL_LOW_H
#include "backend/backend.h"
#include "config/config.h"

/* The recipe of the layers that have one; auto8 is settled. */
enum low low_recipe(const struct config *c);

/* The recipe of a layer's projections and experts: LOW_NONE where the layer stays out. */
enum low low_layer(const struct config *c, int layer);

/* Turns auto8 into the recipe that GPUs of this compute capability (0: the CPU) are made for. NULL,
 * or why they do not compute in the recipe asked for, and what would, or have no rows in eight bits:
 * a new string. */
char *low_settle(struct config *c, int capability);

/* "fp8_block, emulated, in layers 1 to 4, 6 to 30 of 0 to 31", NULL without a recipe of eight bits:
 * a new string. */
char *low_text(const struct config *c, int capability);
#endif
