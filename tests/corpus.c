/* The packed corpus: written and read back, the committed file of format version 1, damaged and
 * foreign files (each opened by a child, since that ends the program), and the cache beside a run.
 */
#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/memory.h"
#include "data/corpus.h"
#include "data/pack.h"
#include "tap.h"
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct pack_options dna = {.alphabet = ALPHABET_DNA, .text_field = "text"};

static void test_fixture(void) {
    const char *srcdir = getenv("srcdir");
    char *path = file_join(srcdir ? srcdir : ".", "tests/fixtures/corpus_v1.h5");
    struct corpus *c = corpus_open(path);
    char *name = corpus_record_name(c, 1);
    uint32_t tokens[4];
    corpus_read(c, 1, 2, 3, tokens);
    tap_ok(c->n_records == 3 && c->n_tokens == 17 && c->token_bytes == 1 &&
               c->alphabet == ALPHABET_DNA && c->eos == 0 && c->max_token == 't',
           "format version 1: sizes and attributes");
    tap_ok(c->offset[1] == 8 && c->length[1] == 9 && c->length[2] == 0, "offsets and lengths");
    tap_ok(strcmp(name, "second") == 0 && tokens[0] == 'g' && tokens[1] == 't' && tokens[2] == 'N',
           "a name and its tokens");
    int64_t n;
    struct corpus_source *s = corpus_read_sources(path, &n);
    tap_ok(n == 1 && strcmp(s[0].path, "corpus_v1.fa") == 0 && s[0].bytes == 45 &&
               strcmp(s[0].checksum, "20c8f740e0942e00002d3841e8392328") == 0,
           "its source");
    corpus_free_sources(s, n);
    memory_free(name);
    corpus_close(c);
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    corpus_info(path, out);
    fclose(out);
    tap_ok(strstr(text, "records      3\n") && strstr(text, "longest      9 tokens (second)") &&
               strstr(text, "shortest     0 tokens (third)") && strstr(text, "alphabet     dna") &&
               strstr(text, "version 1") && strstr(text, " N 11.765 %") &&
               strstr(text, "corpus_v1.fa"),
           "info");
    free(text);
    memory_free(path);
}

static char self[PATH_MAX]; /* this program, which does one thing when called with words */

/* The exit code of `self WORDS`, what it says in `said`. */
static int run_child(const char *words, char *said, size_t room) {
    char *command = memory_format("'%s' %s 2>&1", self, words);
    fflush(stdout);
    FILE *child = popen(command, "r");
    size_t n = child ? fread(said, 1, room - 1, child) : 0;
    said[n] = 0;
    memory_free(command);
    int status = child ? pclose(child) : -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void refused(const char *path, const char *want, const char *what) {
    char said[2000];
    int code = run_child(path, said, sizeof said);
    char *newline = strchr(said, '\n');
    int ok = code == EXIT_DATA && strstr(said, want) && newline && newline[1] == 0;
    if (!ok) tap_note("code %d, said '%s'", code, said);
    tap_ok(ok, "%s", what);
}

/* Changes one attribute of a copy of good.h5. */
static void attribute(const char *path, const char *name, const char *text, int64_t number) {
    size_t n;
    char *good = file_read("good.h5", 1 << 20, &n);
    file_write_atomic(path, good, n);
    memory_free(good);
    hid_t access = h5_file_access(), file = H5Fopen(path, H5F_ACC_RDWR, access);
    H5Pclose(access);
    H5Adelete(file, name);
    if (text)
        h5_string(file, name, text);
    else if (number)
        h5_int64(file, name, number);
    H5Fclose(file);
}

static void test_damaged(void) {
    const char *files[] = {"good.fa"};
    struct pack_report report;
    file_write_atomic("good.fa", ">a\nACGTAC\n>b\nGG\n", 16);
    pack_files(files, 1, "good.h5", &dna, &report);
    struct corpus *c = corpus_open("good.h5");
    tap_ok(c->n_tokens == 8 && memcmp(c->tokens, "ACGTACGG", 8) == 0 && report.tokens == 8 &&
               report.bytes_in == 16,
           "packed and read back");
    corpus_close(c);
    size_t n;
    char *good = file_read("good.h5", 1 << 20, &n);
    file_write_atomic("cut.h5", good, n - 1);
    refused("cut.h5", "cut.h5: an HDF5 file, but damaged or cut short", "a file one byte short");
    file_write_atomic("cut.h5", good, n / 2);
    refused("cut.h5", "cut.h5: an HDF5 file, but damaged or cut short", "half a file");
    refused("good.fa", "good.fa: not an HDF5 file", "no HDF5 file");
    refused("absent.h5", "absent.h5: No such file", "no file");
    memory_free(good);
    attribute("x.h5", "format", NULL, 0);
    refused("x.h5", "x.h5: no 'regulon corpus' file", "no format");
    attribute("x.h5", "format", "regulon metrics", 0);
    refused("x.h5", "x.h5: a 'regulon metrics' file where 'regulon corpus' is wanted",
            "another format");
    attribute("x.h5", "format_version", NULL, 2);
    refused("x.h5",
            "x.h5: format_version 2 of 'regulon corpus' is newer than this program reads (1)",
            "a newer version");
    attribute("x.h5", "alphabet", "xna", 0);
    refused("x.h5", "x.h5: a damaged corpus: alphabet", "an unknown alphabet");
    attribute("x.h5", "max_token", NULL, 256);
    refused("x.h5", "x.h5: a damaged corpus: max_token", "a token that does not fit");
    attribute("x.h5", "eos", NULL, 1);
    hid_t access = h5_file_access(), file = H5Fopen("x.h5", H5F_ACC_RDWR, access),
          d = H5Dopen2(file, "/records/length", H5P_DEFAULT);
    int64_t length[] = {6, 3};
    H5Dwrite(d, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, length);
    H5Dclose(d);
    H5Pclose(access);
    H5Fclose(file);
    refused("x.h5", "x.h5: a damaged corpus: a record that reaches beyond /tokens",
            "a record too long");
}

static void test_wide(void) {
    static const uint32_t tokens[] = {70000, 3, 9, 9, 5, 70001, 9};
    const char *files[] = {"wide.bin"};
    const struct pack_options o = {.token_bytes = 4, .eos = 9};
    struct pack_report report;
    file_write_atomic("wide.bin", tokens, sizeof tokens);
    pack_files(files, 1, "wide.h5", &o, &report);
    struct corpus *c = corpus_open("wide.h5");
    uint32_t out[2];
    corpus_read(c, 2, 0, 2, out);
    tap_ok(c->token_bytes == 4 && c->n_records == 3 && c->eos == 9 && c->max_token == 70001 &&
               c->length[1] == 0 && out[0] == 5 && out[1] == 70001 &&
               c->alphabet == ALPHABET_BYTES && report.empty_records == 1,
           "four-byte tokens");
    corpus_close(c);
}

static void test_cache(void) {
    file_write_atomic("c.fa", ">a\nACGT\n", 8);
    char *first = pack_cached("c.fa", "cache/deep", &dna),
         *itself = pack_cached(first, "cache/deep", &dna);
    struct stat a, b, c, d;
    stat(first, &a);
    char *second = pack_cached("c.fa", "cache/deep", &dna);
    stat(second, &b);
    tap_ok(strcmp(first, second) == 0 && a.st_ino == b.st_ino &&
               a.st_mtim.tv_nsec == b.st_mtim.tv_nsec,
           "a cache is made once");
    tap_ok(strcmp(itself, first) == 0, "a corpus is its own packed form");
    struct stat source;
    stat("c.fa", &source);
    int fd = open("c.fa", O_WRONLY); /* same size and time, other bases */
    int wrote = pwrite(fd, "TTTT", 4, 3) == 4;
    struct timespec times[] = {source.st_atim, source.st_mtim};
    futimens(fd, times);
    close(fd);
    memory_free(pack_cached("c.fa", "cache/deep", &dna));
    stat(first, &c);
    struct corpus *changed = corpus_open(first);
    tap_ok(wrote && c.st_ino != b.st_ino && memcmp(changed->tokens, "TTTT", 4) == 0,
           "another checksum makes it stale");
    corpus_close(changed);
    times[1].tv_sec += 5;
    utimensat(AT_FDCWD, "c.fa", times, 0);
    memory_free(pack_cached("c.fa", "cache/deep", &dna));
    stat(first, &d);
    tap_ok(d.st_ino != c.st_ino || d.st_mtim.tv_nsec != c.st_mtim.tv_nsec,
           "another time makes it stale");
    struct pack_options bytes = dna;
    bytes.alphabet = ALPHABET_BYTES;
    char *other = pack_cached("c.fa", "cache/deep", &bytes);
    tap_ok(strcmp(other, first) != 0, "another alphabet has a cache of its own");
    memory_free(other);
    memory_free(first);
    memory_free(second);
    memory_free(itself);
}

/* A file system that takes no more, in either pass: 74, and nothing is left of the attempt. */
static void test_full(void) {
    enum { BASES = 600000 };
    char *text = memory_alloc(BASES + 4), said[2000];
    memcpy(text, ">a\n", 3);
    memset(text + 3, 'A', BASES);
    file_write_atomic("full.fa", text, BASES + 3);
    memory_free(text);
    int code = run_child("full.fa 300000", said, sizeof said);
    tap_ok(code == EXIT_IO && strstr(said, "tmp: File too large") &&
               system("ls ./*.tmp >/dev/null 2>&1") != 0,
           "no room for the tokens on their way");
    code = run_child("full.fa 605000", said, sizeof said);
    tap_ok(code == EXIT_IO && strstr(said, "cannot write full.h5: File too large") &&
               !file_exists("full.h5") && system("ls ./*.tmp >/dev/null 2>&1") != 0,
           "no room for the corpus");
}

/* Without MPI, as the child of a program that has it: opens a corpus; or packs a file into full.h5
 * while no file may grow beyond so many bytes. */
static int child(int argc, char **argv) {
    h5_open_library();
    if (argc == 2) corpus_close(corpus_open(argv[1]));
    if (argc == 2) return 0;
    struct rlimit limit = {strtoul(argv[2], NULL, 10), RLIM_INFINITY};
    struct pack_report report;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    pack_files((const char *const[]){argv[1]}, 1, "full.h5", &dna, &report);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) return child(argc, argv);
    tap_open(&argc, &argv);
    h5_open_library();
    if (realpath(argv[0], self) == NULL) return 1;
    test_fixture();
    char folder[] = "/tmp/corpus-test-XXXXXX", command[64];
    if (mkdtemp(folder) == NULL || chdir(folder) != 0) return 1;
    test_damaged();
    test_wide();
    test_cache();
    test_full();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    tap_ok(chdir("/") == 0 && system(command) == 0, "cleaned up");
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
