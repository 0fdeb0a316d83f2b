/* The genome that comes with the program, for tests that need real letters. */
#ifndef REGULON_TESTS_GENOME_H
#define REGULON_TESTS_GENOME_H
#include "base/file.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Its letters into text[room], as far as there is room; how many they are. path, which the caller
 * frees, gets the name of its file. */
static inline size_t genome_read(char *text, size_t room, char **path) {
    const char *srcdir = getenv("srcdir");
    char line[1024];
    size_t n = 0;
    *path = file_join(srcdir ? srcdir : ".", "input/genomes/ecoli_536.fna.gz");
    gzFile f = gzopen(*path, "rb");
    while (f && n < room && gzgets(f, line, sizeof line)) {
        size_t letters = strcspn(line, "\r\n");
        if (line[0] == '>') continue;
        if (letters > room - n) letters = room - n;
        memcpy(text + n, line, letters);
        n += letters;
    }
    if (f) gzclose(f);
    return n;
}
#endif
