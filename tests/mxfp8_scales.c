/* Where the scales of MXFP8 lie (kernels/mxfp8_scales.h): every place of matrices of many sizes
 * against a walk through memory, and some by hand. */
#include "config.h"
#include "mxfp8_scales.h"
#include "mxfp8_tiles.h"
#include "tap.h"
#include <string.h>

static void check_places(int rows, int cols) {
    size_t n, wrong = 0, twice = 0, used = 0, bytes = mxfp8_scale_bytes((size_t)rows, (size_t)cols);
    struct scale_place *list = scale_places(rows, cols, &n);
    char *taken = memory_alloc(n + 1);
    memset(taken, 0, n + 1);
    for (int r = 0; r < rows; r++)
        for (int b = 0; b < (cols + 31) / 32; b++) {
            size_t at = mxfp8_scale_at((size_t)r, (size_t)b, (size_t)cols);
            if (at >= n || list[at].row != r || list[at].block != b)
                wrong++;
            else
                twice += taken[at]++ != 0;
        }
    for (size_t i = 0; i < n; i++) used += list[i].row >= 0;
    tap_ok(bytes == n && wrong == 0 && twice == 0 &&
               used == (size_t)rows * (size_t)((cols + 31) / 32),
           "%d x %d: %zu bytes of %zu, %zu places are others, %zu are taken twice", rows, cols,
           bytes, n, wrong, twice);
    memory_free(taken);
    memory_free(list);
}

static void check_hand(void) {
    /* row, block of 32, columns of the matrix, byte: from the picture in cuBLAS's documentation */
    static const size_t known[][4] = {
        {0, 0, 128, 0},      {0, 3, 128, 3},
        {1, 0, 128, 16},     {31, 3, 128, 499},
        {32, 0, 128, 4},     {33, 1, 128, 21},
        {64, 0, 128, 8},     {96, 0, 128, 12},
        {127, 3, 128, 511},  {0, 4, 256, 512},
        {128, 0, 256, 1024}, {128, 0, 160, 1024},
        {128, 0, 128, 512},  {200, 5, 224, 1024 + 512 + 8 * 16 + 8 + 1}};
    int wrong = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t at = mxfp8_scale_at(known[i][0], known[i][1], known[i][2]);
        if (at == known[i][3]) continue;
        tap_note("row %zu, block %zu: byte %zu, not %zu", known[i][0], known[i][1], at,
                 known[i][3]);
        wrong++;
    }
    tap_ok(wrong == 0, "places known by hand");
    tap_ok(mxfp8_scale_bytes(1, 32) == 512 && mxfp8_scale_bytes(128, 128) == 512 &&
               mxfp8_scale_bytes(129, 128) == 1024 && mxfp8_scale_bytes(128, 160) == 1024 &&
               mxfp8_scale_bytes(0, 128) == 0,
           "bytes of whole tiles");
    tap_ok(mxfp8_codes(3, 45, 96) == 3 * 64 * 96 && mxfp8_scales(3, 45, 96) == 3 * 512 &&
               mxfp8_scales(1, 256, 160) == 4 * 512,
           "bytes of several matrices");
}

int main(int argc, char **argv) {
    static const int sizes[] = {1, 31, 32, 33, 96, 127, 128, 129, 160, 255, 256, 300, 640};
    int n = sizeof sizes / sizeof *sizes;
    tap_open(&argc, &argv);
    check_hand();
    for (int i = 0; i < n; i++) check_places(sizes[i], 32 * sizes[(i * 5 + 3) % n]);
    check_places(4096, 14336);
    tap_ok(memory_live() == 0, "all memory is freed");
    return tap_close();
}
