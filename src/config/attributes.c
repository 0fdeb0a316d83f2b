#include "config.h"
#include "config/attributes.h"
#include "base/h5.h"

static void write_value(const char *key, const char *value, void *group) {
    h5_string(*(hid_t *)group, key, value);
}

void config_write_attributes(const struct config *c, hid_t file) {
    hid_t group = H5Gcreate2(file, "/config", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    config_each(c, write_value, &group);
    H5Gclose(group);
}
