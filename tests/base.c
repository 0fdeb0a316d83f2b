/* The base layer: words, numbers, random numbers, files. */
#include "config.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "tap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_permutation(void) {
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000};
    int ok = 1;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        char seen[1000] = {0};
        for (uint64_t i = 0; i < sizes[s]; i++) {
            uint64_t p = random_permute(7, i, sizes[s]);
            ok = ok && p < sizes[s] && !seen[p];
            if (p < sizes[s]) seen[p] = 1;
        }
    }
    tap_ok(ok, "random_permute is a permutation for every size");
    int moved = 0;
    for (uint64_t i = 0; i < 1000; i++)
        moved += random_permute(1, i, 1000) != random_permute(2, i, 1000);
    tap_ok(moved > 950, "keys give different permutations");
}

static void test_random(void) {
    /* Random123's known answers for philox4x32-10 with all-zero and all-one counter and key */
    tap_ok(random_bits(0, 0, 0) == 0xe169c58d6627e8d5u, "philox known answer, zeros");
    tap_ok(random_bits(~0ull, ~0ull, ~0ull) == 0x41c83b0e408f276du, "philox known answer, ones");
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double x = random_normal(3, RANDOM_TEST, i);
        sum += x, squares += x * x;
    }
    tap_ok(fabs(sum / 1e5) < 0.015 && fabs(squares / 1e5 - 1) < 0.02,
           "normals: mean %.4f, variance %.4f", sum / 1e5, squares / 1e5);
}

static void test_text(void) {
    static const char *const words[] = {"seed", "num_train_steps", "optimizer.lr"};
    const char *near = text_nearest("num_train_step", words, 3);
    tap_ok(near && strcmp(near, "num_train_steps") == 0, "nearest word");
    tap_ok(text_nearest("zzzzzzzz", words, 3) == NULL, "no word is near");
    int64_t i;
    double x;
    tap_ok(text_to_int("-12", &i) && i == -12 && !text_to_int("1x", &i) && !text_to_int("", &i) &&
               !text_to_int(" 1", &i) && !text_to_int("99999999999999999999", &i),
           "whole numbers");
    tap_ok(text_to_real("1e-3", &x) && x == 1e-3 && !text_to_real("nan", &x) &&
               !text_to_real("1.0.", &x) && !text_to_real("1e999", &x) && !text_to_real("0x10", &x),
           "reals");
    char buf[32];
    static const double reals[] = {0, 1, -2.5, 0.1, 1e-5, 1.0 / 3, 1e300, 5e-324, 123456789012.5};
    int same = 1;
    for (size_t r = 0; r < sizeof reals / sizeof *reals; r++)
        same = same && text_to_real(text_real(buf, sizeof buf, reals[r]), &x) && x == reals[r];
    tap_ok(same && strcmp(text_real(buf, sizeof buf, 1e-5), "1.0e-05") == 0,
           "reals written and read back");
    uint32_t code;
    tap_ok(text_utf8("a", &code) == 1 && text_utf8("\xc3\xa4", &code) == 2 && code == 0xe4 &&
               text_utf8("\xf0\x9f\xa7\xac", &code) == 4 && code == 0x1f9ec &&
               !text_utf8("", &code) && !text_utf8("\xc3", &code) &&
               !text_utf8("\xc0\x80", &code) && !text_utf8("\xed\xa0\x80", &code) &&
               !text_utf8("\xff", &code),
           "UTF-8 characters");
    tap_ok(strcmp(text_bytes(buf, sizeof buf, 1.5e9), "1.50 GB") == 0, "bytes: %s", buf);
    tap_ok(strcmp(text_duration(buf, sizeof buf, 3720), "1 h 02 min") == 0, "duration: %s", buf);
}

static void test_file(void) {
    char folder[] = "base-test-XXXXXX";
    tap_ok(mkdtemp(folder) != NULL, "temporary folder");
    char *deep = file_join(folder, "a/b/c"), *path = file_join(deep, "f.txt");
    tap_ok(file_make_folders(deep) && file_write_atomic(path, "hello", 5),
           "folders made, file written");
    size_t n;
    char *text = file_read(path, 100, &n);
    tap_ok(text && n == 5 && strcmp(text, "hello") == 0, "read back");
    tap_ok(file_read(path, 4, &n) == NULL, "a file over the limit is refused");
    memory_free(text);
    unlink(path);
    for (char *p = deep; strlen(p) >= strlen(folder);) {
        rmdir(p);
        char *up = file_folder(p);
        memory_free(p);
        p = up;
        if (strcmp(p, ".") == 0) {
            memory_free(p);
            break;
        }
    }
    memory_free(path);
}

/* Also sizes that are no multiples of a large page. */
static void test_pages(void) {
    static const size_t sizes[] = {0, 1, 2 << 20, (5 << 20) + 7};
    int bad = 0;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        char *p = memory_pages(sizes[k], 1);
        for (size_t i = 0; i < sizes[k]; i++) bad += p[i] != 0;
        if (sizes[k]) memset(p, 1, sizes[k]);
        memory_free(p);
    }
    tap_ok(bad == 0, "memory in large pages is zero");
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    test_permutation();
    test_random();
    test_text();
    test_file();
    test_pages();
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
