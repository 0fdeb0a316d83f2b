#include "config.h"
#include "backend/backend.h"
#include "backend/cpu.h"
#include "base/memory.h"
#include <string.h>

struct backend *backend_open(const char *name, const struct grid *g) {
    if (strcmp(name, "cpu") != 0) return NULL;
    struct backend *be = memory_alloc(sizeof *be);
    be->grid = g;
    be->sent_rows = memory_alloc_array((size_t)g->ep_size, sizeof *be->sent_rows);
    cpu_open(be);
    return be;
}

void backend_close(struct backend *be) {
    if (!be) return;
    cpu_close(be);
    memory_free(be->sent_rows);
    memory_free(be);
}
