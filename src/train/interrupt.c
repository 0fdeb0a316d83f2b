#include "config.h"
#include "train/interrupt.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/stop.h"

int interrupt_asked(const struct run *r) {
    const struct config *c = r->config;
    double limit = c->train.max_hours * 3600 - c->train.reserve_minutes * 60;
    if (stop_asked()) return 1;
    if (r->grid.rank != 0) return 0;
    if (c->train.max_hours > 0 && log_seconds() >= limit) return 1;
    char *path = file_join(r->folder, "stop");
    int there = file_exists(path);
    memory_free(path);
    return there;
}
