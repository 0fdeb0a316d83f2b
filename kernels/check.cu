#include "check.h"
#include <cstdio>
#include <cstdlib>

static kernel_failure *on_failure;

void kernel_on_failure(kernel_failure *handler) {
    on_failure = handler;
}

void kernel_failed(const char *file, int line, const char *text) {
    if (on_failure) on_failure(file, line, text);
    fprintf(stderr, "%s:%d: %s\n", file, line, text);
    abort();
}
