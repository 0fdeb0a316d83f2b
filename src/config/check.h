/* Keys against each other: what no single value shows. */
#ifndef REGULON_CONFIG_CHECK_H
#define REGULON_CONFIG_CHECK_H
#include "config/config.h"

/* NULL, or the first contradiction, naming both keys: a new string. */
char *check_config(const struct config *c);

/* The same for what only training needs: exactly one of dataset.path and dataset.sources. */
char *check_training(const struct config *c);
#endif
