#include "config.h"
#include "base/memory.h"
#include "base/die.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_llong live; /* threads allocate too */

void *memory_alloc(size_t bytes) {
    size_t rounded = (bytes + 63) / 64 * 64;
    void *p = NULL;
    if (rounded < bytes || posix_memalign(&p, 64, rounded ? rounded : 64) != 0)
        die("out of memory: %zu bytes", bytes);
    memset(p, 0, rounded ? rounded : 64);
    atomic_fetch_add(&live, 1);
    return p;
}

void *memory_pages(size_t n, size_t size) {
    enum { PAGE = 2 << 20 };
    size_t bytes, pages;
    void *p = NULL;
    if (__builtin_mul_overflow(n, size, &bytes)) die("out of memory: %zu x %zu bytes", n, size);
    pages = bytes / PAGE + 1;
    if (pages > SIZE_MAX / PAGE || posix_memalign(&p, PAGE, pages * PAGE) != 0)
        die("out of memory: %zu bytes", bytes);
    (void)madvise(p, pages * PAGE, MADV_HUGEPAGE);
#pragma omp parallel for
    for (size_t i = 0; i < pages; i++) memset((char *)p + i * PAGE, 0, PAGE);
    atomic_fetch_add(&live, 1);
    return p;
}

void *memory_alloc_array(size_t n, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) die("out of memory: %zu x %zu bytes", n, size);
    return memory_alloc(bytes);
}

void *memory_resize(void *p, size_t bytes) {
    if (p == NULL) return memory_alloc(bytes);
    void *q = realloc(p, bytes ? bytes : 1);
    if (q == NULL) die("out of memory: %zu bytes", bytes);
    return q;
}

void memory_free(void *p) {
    if (p == NULL) return;
    atomic_fetch_sub(&live, 1);
    free(p);
}

char *memory_string(const char *s) {
    if (s == NULL) return NULL;
    size_t n = strlen(s) + 1;
    return memcpy(memory_alloc(n), s, n);
}

char *memory_format(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *s = memory_alloc((size_t)n + 1);
    va_start(args, format);
    vsnprintf(s, (size_t)n + 1, format, args);
    va_end(args);
    return s;
}

int64_t memory_live(void) {
    return (int64_t)atomic_load(&live);
}
