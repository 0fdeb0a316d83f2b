/* A matrix in MXFP8 as it is expected: src/backend/formats.h, with the scales of mxfp8_tiles.h. */
#ifndef REGULON_TESTS_MXFP8_PACKED_H
#define REGULON_TESTS_MXFP8_PACKED_H
#include "backend/formats.h"
#include "mxfp8_scales.h"
#include "mxfp8_tiles.h"

/* One operand as it is expected. */
struct wanted {
    uint8_t *codes, *scales;
    size_t n_codes, n_scales;
};

/* x[rows, cols] rounded along rows, or transposed and rounded down columns, behind what is there.
 * Codes of NaN have no sign. */
static inline void expect(struct wanted *w, const float *x, int rows, int cols, int down) {
    int depth = down ? (int)mxfp8_whole((size_t)rows) : cols, lines = down ? cols : rows,
        blocks = depth / MXFP8_BLOCK;
    size_t n_elements = (size_t)lines * (size_t)depth, n;
    float *v = memory_alloc_array(n_elements, sizeof *v),
          *scales = memory_alloc_array((size_t)lines * (size_t)blocks, sizeof *scales);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) v[down ? j * depth + i : i * depth + j] = x[i * cols + j];
    format_round((struct format){E4M3, FORMAT_E8M0, 1, MXFP8_BLOCK}, v, lines, depth, (size_t)depth,
                 v, (size_t)depth, w->codes + w->n_codes, scales);
    for (size_t i = w->n_codes; i < w->n_codes + n_elements; i++)
        if ((w->codes[i] & 0x7f) == 0x7f) w->codes[i] = 0x7f;
    w->n_codes += n_elements;
    struct scale_place *places = scale_places(lines, depth, &n);
    for (size_t i = 0; i < n; i++)
        w->scales[w->n_scales++] =
            places[i].row < 0 ? 0 : e8m0_encode(scales[places[i].row * blocks + places[i].block]);
    memory_free(places);
    memory_free(scales);
    memory_free(v);
}
#endif
