#include "config.h"
#include "base/revision.h"
#include <revision.h>
const char *revision_name(void) {
    return REGULON_REVISION;
}
const char *revision_configure_line(void) {
    return REGULON_CONFIGURE_LINE;
}
