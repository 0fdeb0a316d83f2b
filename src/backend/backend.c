#include "config.h"
#include "backend/backend.h"
#include "backend/cpu.h"
#include "backend/cuda_sizes.h"
#include "base/memory.h"
#include <string.h>
#ifdef HAVE_CUDA
#include "backend/cuda.h"

static int is_cuda(const char *name) {
    return strcmp(name, "cuda") == 0;
}
#endif

int backend_exists(const char *name) {
#ifdef HAVE_CUDA
    if (is_cuda(name)) return 1;
#endif
    return strcmp(name, "cpu") == 0;
}

char *backend_refusal(const char *name, const struct grid *g) {
    char *problem =
        backend_exists(name) ? NULL : memory_format("this program was built without %s", name);
#ifdef HAVE_CUDA
    if (!problem && is_cuda(name)) problem = cuda_refusal(g);
    if (is_cuda(name) && !agree_any(g, problem != NULL)) problem = cuda_refusal_together(g);
#else
    (void)g;
#endif
    return problem;
}

int backend_capability(const char *name, const struct grid *g) {
#ifdef HAVE_CUDA
    if (is_cuda(name)) return cuda_capability(g);
#endif
    (void)name;
    (void)g;
    return 0;
}

enum low_way backend_low_way(int capability, enum low low) {
    return capability ? cuda_low_way(capability, low) : LOW_EMULATED;
}

struct backend *backend_open(const char *name, const struct grid *g,
                             const struct backend_options *o) {
    static const struct backend_options none;
    struct backend *be = memory_alloc(sizeof *be);
    be->grid = g;
    be->sent_rows = memory_alloc_array((size_t)g->ep_size, sizeof *be->sent_rows);
#ifdef HAVE_CUDA
    if (is_cuda(name)) {
        cuda_open(be, o ? o : &none);
        return be;
    }
#endif
    (void)name;
    (void)none;
    (void)o;
    cpu_open(be);
    return be;
}

void backend_close(struct backend *be) {
    if (!be) return;
    be->close(be);
    memory_free(be->sent_rows);
    memory_free(be);
}
