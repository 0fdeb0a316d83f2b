/* Checkpoints that are not what was written: each flipped bit, missing, cut, empty or foreign file
 * is found, the file and the dataset are named, and the checkpoint before is taken. */
#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/random.h"
#include "checkpoint/checksums.h"
#include "checkpoint/folder.h"
#include "checkpoint/restore.h"
#include "checkpoint/saver.h"
#include "tap.h"
#include "trial.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char deck[] =
    "num_train_steps: 20\n"
    "model: {vocab_size: 130, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2,\n"
    "  num_attention_heads: 2, num_local_experts: 4, num_experts_per_tok: 2}\n"
    "dataset: {path: unused, max_seq_length: 16}\n";

enum { FLIPS = 500 };
static const char run[] = "damage", newer[] = "damage/step_000000006",
                  older[] = "damage/step_000000003";
static const char *const files[] = {"shard_d000_e000.h5", "shard_d001_e000.h5", "index.h5",
                                    "checksums"};
enum { N_FILES = sizeof files / sizeof *files };

static void save(struct trial *t, int64_t step) {
    struct saver *s = saver_new(t->o, run, "0123456789abcdef", /*keep=*/2, /*every=*/0);
    saver_begin(s, (struct counters){.step = step});
    saver_drain(s);
    saver_free(s);
}

/* One rank does something to the files while the others wait. */
static void alone(const struct trial *t, void (*act)(const char *path, int64_t argument),
                  const char *path, int64_t argument) {
    MPI_Barrier(t->g.world);
    if (t->g.rank == 0) act(path, argument);
    MPI_Barrier(t->g.world);
}

static char *read_whole(const char *path, size_t *bytes) {
    char *data = file_read(path, 1 << 30, bytes);
    if (!data) die("%s", path);
    return data;
}

static void write_whole(const char *path, const char *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) die("%s", path);
}

/* Flips bit `place` of the file. */
static void flip(const char *path, int64_t place) {
    size_t bytes;
    char *data = read_whole(path, &bytes);
    data[place / 8] = (char)(data[place / 8] ^ 1 << place % 8);
    write_whole(path, data, bytes);
    memory_free(data);
}

static void cut(const char *path, int64_t bytes) {
    if (truncate(path, (off_t)bytes) != 0) die("%s", path);
}

static void remove_file(const char *path, int64_t unused) {
    (void)unused;
    if (unlink(path) != 0) die("%s", path);
}

/* Puts the file of the same name from the older checkpoint in its place: sound in itself. */
static void replace(const char *path, int64_t unused) {
    char *other = file_join(older, file_basename(path));
    size_t bytes;
    char *data = read_whole(other, &bytes);
    (void)unused;
    write_whole(path, data, bytes);
    memory_free(data);
    memory_free(other);
}

/* The dataset that holds byte `at` of a shard, by what `checksums` said when it was whole. */
static const char *dataset_at(const char *remarks, const char *file, int64_t at, char name[128]) {
    for (const char *line = remarks; line; line = strchr(line, '\n')) {
        char of[64];
        long long offset, bytes;
        if (*line == '\n') line++;
        if (sscanf(line, "# %*x  %63s %127s %lld %lld", of, name, &offset, &bytes) == 4 &&
            strcmp(of, file) == 0 && at >= offset && at < offset + bytes)
            return name;
    }
    return "HDF5 metadata";
}

/* Does the message of rank 0 about a damaged file name it and the place? */
static int is_named(const char *file, const char *place) {
    struct checksum *list;
    int n, named = 0;
    char *problem = checksums_read(newer, &list, &n), *path = file_join(newer, file),
         *expected = memory_format("%s: damaged%s%s", path, place[0] ? ": " : "", place);
    for (int i = 0; i < n && !problem; i++)
        if (strcmp(list[i].name, file) == 0) problem = checksums_verify(newer, &list[i]);
    named = problem && strcmp(problem, expected) == 0;
    if (!named) printf("# \"%s\", not \"%s\"\n", problem ? problem : "", expected);
    memory_free(expected);
    memory_free(path);
    memory_free(problem);
    memory_free(list);
    return named;
}

static int takes(struct trial *t, int64_t step) {
    struct shard_header h;
    return checkpoint_restore(t->o, run, &h) && h.counters.step == step;
}

static void check_flips(struct trial *t) {
    int64_t sizes[N_FILES], all = 0;
    int missed = 0, unnamed = 0;
    char *sums = file_join(newer, "checksums"), *remarks = read_whole(sums, NULL), name[128];
    for (int f = 0; f < N_FILES; f++) {
        char *path = file_join(newer, files[f]);
        all += sizes[f] = file_size(path);
        memory_free(path);
    }
    MPI_Barrier(t->g.world);
    for (int i = 0; i < FLIPS; i++) {
        /* half of them over all bytes, half over the two small files */
        uint64_t r = random_bits(1, RANDOM_TEST, (uint64_t)i);
        int64_t small = sizes[2] + sizes[3], at = (int64_t)((r >> 3) % (uint64_t)all);
        if (i % 2) at = all - small + (int64_t)((r >> 3) % (uint64_t)small);
        int f = 0;
        while (at >= sizes[f]) at -= sizes[f++];
        char *path = file_join(newer, files[f]);
        const char *place = f < 2    ? dataset_at(remarks, files[f], at, name)
                            : f == 2 ? "HDF5 metadata"
                                     : "";
        alone(t, flip, path, at * 8 + (int64_t)(r & 7));
        missed += !takes(t, 3);
        if (t->g.rank == 0) unnamed += !is_named(files[f], place);
        alone(t, flip, path, at * 8 + (int64_t)(r & 7));
        memory_free(path);
    }
    tap_ok(missed == 0, "%d bit flips: %d not noticed, or the one before not taken", FLIPS, missed);
    tap_ok(unnamed == 0, "file and dataset are named, %d times not", unnamed);
    tap_ok(takes(t, 6), "mended, the newer one is taken");
    memory_free(remarks);
    memory_free(sums);
}

static void check_files(struct trial *t) {
    for (int f = 0; f < N_FILES; f++) {
        char *path = file_join(newer, files[f]);
        size_t bytes;
        char *data = read_whole(path, &bytes);
        int ok = 1;
        alone(t, cut, path, (int64_t)bytes / 2);
        ok = ok && takes(t, 3);
        alone(t, cut, path, 0);
        ok = ok && takes(t, 3);
        alone(t, remove_file, path, 0);
        ok = ok && takes(t, 3);
        alone(t, replace, path, 0);
        ok = ok && takes(t, 3);
        MPI_Barrier(t->g.world);
        if (t->g.rank == 0) write_whole(path, data, bytes);
        MPI_Barrier(t->g.world);
        tap_ok(ok && takes(t, 6), "%s cut, empty, missing, of another step: the one before",
               files[f]);
        memory_free(data);
        memory_free(path);
    }
}

static void check_kept(struct trial *t) {
    int n;
    save(t, 9);
    int64_t *list = checkpoint_list(run, &n);
    tap_ok(n == 2 && list[0] == 9 && list[1] == 6, "the two newest are kept");
    memory_free(list);
    MPI_Barrier(t->g.world);
    if (t->g.rank == 0) trial_remove_run(run);
}

int main(int argc, char **argv) {
    struct trial t;
    tap_open(&argc, &argv);
    h5_open_library();
    io_open();
    trial_open(&t, MPI_COMM_WORLD, 2, 1, deck);
    save(&t, 3);
    save(&t, 6);
    check_flips(&t);
    check_files(&t);
    check_kept(&t);
    trial_close(&t);
    io_close();
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
