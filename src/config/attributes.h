/* The deck in an HDF5 file. */
#ifndef REGULON_CONFIG_ATTRIBUTES_H
#define REGULON_CONFIG_ATTRIBUTES_H
#include "config/config.h"
#include <hdf5.h>

/* Group /config of an open file that has none: one attribute a key, its value as text. */
void config_write_attributes(const struct config *c, hid_t file);
#endif
