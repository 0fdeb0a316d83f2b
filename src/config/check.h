/* Keys against each other: what no single value shows. */
#ifndef REGULON_CONFIG_CHECK_H
#define REGULON_CONFIG_CHECK_H
#include "config/config.h"

/* NULL, or the first contradiction, naming both keys: a new string. */
char *check_config(const struct config *c);

/* NULL, or which of precision.recipe and engine.* the cuda backend, else the cpu backend, does not
 * have: a new string. check_config asks where `backend` says which it is; with auto who settles
 * that does. A build or a device may still lack what the backend has. */
char *check_engines(const struct config *c, int cuda);

/* The same for what only steps heed: what evaluates a model may give it another recipe. */
char *check_steps(const struct config *c);

/* The same for what only training needs: exactly one of dataset.path and dataset.sources. */
char *check_training(const struct config *c);
#endif
