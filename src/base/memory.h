/* Host memory that aborts when there is none, counted so that leaks show. */
#ifndef REGULON_BASE_MEMORY_H
#define REGULON_BASE_MEMORY_H
#include <stddef.h>
#include <stdint.h>

void *memory_alloc(size_t bytes);                /* zeroed, 64-byte aligned; the caller frees it */
void *memory_alloc_array(size_t n, size_t size); /* n elements of `size` bytes; dies on overflow */
/* The same, zeroed by all threads, in large pages where there are such: for gigabytes, whose pages
 * are to be there from the start. */
void *memory_pages(size_t n, size_t size);
void *memory_resize(void *p, size_t bytes); /* keeps the contents; new bytes are not zeroed */
void memory_free(void *p);                  /* NULL is fine */
char *memory_string(const char *s);         /* a copy; NULL gives NULL */
char *memory_format(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* a new string */
int64_t memory_live(void);                 /* blocks not yet freed */
#endif
