/* The scales of MXFP8 as cuBLAS documents their places, said the other way round than
 * kernels/mxfp8_scales.h: byte by byte as they lie in memory. */
#ifndef REGULON_TESTS_MXFP8_TILES_H
#define REGULON_TESTS_MXFP8_TILES_H
#include "base/memory.h"
#include <stddef.h>

/* Whose scale a byte is: row `row`, values 32 block to 32 block + 31; row -1: nobody's. */
struct scale_place {
    int row, block;
};

/* Of x[rows, cols]: n[0] bytes. The caller frees the list. */
static inline struct scale_place *scale_places(int rows, int cols, size_t *n) {
    int down = (rows + 127) / 128, blocks = (cols + 31) / 32, along = (blocks + 3) / 4;
    struct scale_place *list = memory_alloc_array((size_t)(down * along) * 512 + 1, sizeof *list);
    *n = 0;
    for (int i = 0; i < down; i++)
        for (int j = 0; j < along; j++)
            for (int line = 0; line < 32; line++)             /* 16 bytes each */
                for (int quarter = 0; quarter < 4; quarter++) /* rows 32 apart */
                    for (int c = 0; c < 4; c++) {
                        int row = 128 * i + 32 * quarter + line, block = 4 * j + c;
                        int there = row < rows && block < blocks;
                        list[(*n)++] = (struct scale_place){there ? row : -1, block};
                    }
    return list;
}
#endif
