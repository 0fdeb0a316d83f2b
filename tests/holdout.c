/* Held-out records, end to end: FASTA, packed corpus, names read back, streams cut. */
#include "config.h"
#include "base/die.h"
#include "base/file.h"
#include "base/h5.h"
#include "base/memory.h"
#include "base/random.h"
#include "data/pack.h"
#include "data/stream.h"
#include "hand.h"
#include "tap.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORDS = 400, LONGEST = 60 };
static const double share = 0.2;

/* A record's name and sequence; names differ in their last letters only. */
static void name_of(int record, char name[32]) {
    snprintf(name, 32, "NZ_CP0%05d.1", record);
}

static int sequence_of(int record, char *out) {
    uint64_t seed = 4, first = (uint64_t)record * (LONGEST + 1);
    int n = 1 + (int)(random_bits(seed, RANDOM_TEST, first) % LONGEST);
    for (int i = 0; i < n; i++)
        out[i] = "ACGT"[random_bits(seed, RANDOM_TEST, first + 1 + (uint64_t)i) % 4];
    return n;
}

static void write_fasta(const char *path) {
    char name[32], bases[LONGEST];
    FILE *f = fopen(path, "w");
    if (!f) die("cannot write %s", path);
    for (int r = 0; r < RECORDS; r++) {
        name_of(r, name);
        fprintf(f, ">%s Escherichia coli, record %d\n%.*s\n", name, r, sequence_of(r, bases),
                bases);
    }
    fclose(f);
}

/* The records of one part, one after the other; the caller frees it. */
static char *expected(int held_out, int64_t *n, int *n_records) {
    char *text = memory_alloc((size_t)RECORDS * LONGEST), name[32];
    *n = *n_records = 0;
    for (int r = 0; r < RECORDS; r++) {
        name_of(r, name);
        if (stream_holds_out(name, share) != held_out) continue;
        *n += sequence_of(r, text + *n);
        ++*n_records;
    }
    return text;
}

static int stream_is(const struct stream *s, const char *text, int64_t n) {
    int32_t tokens[LONGEST], labels[LONGEST];
    float weights[LONGEST];
    int ok = stream_tokens(s) == n;
    for (int64_t at = 0, some; ok && at < n; at += some) {
        some = stream_read(s, at, LONGEST, tokens, labels, weights);
        for (int64_t i = 0; i < some; i++) ok &= tokens[i] == text[at + i];
        ok &= some > 0;
    }
    return ok;
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    h5_open_library();
    char folder[] = "holdout.XXXXXX";
    if (!mkdtemp(folder)) die("cannot make a folder");
    char *fasta = file_join(folder, "a.fa"), *packed = file_join(folder, "a.h5");
    const char *files[] = {fasta};
    struct pack_options options = {.alphabet = ALPHABET_DNA};
    struct pack_report report;
    write_fasta(fasta);
    pack_files(files, 1, packed, &options, &report);
    struct corpus *corpus = corpus_open(packed);
    struct config c = hand_config(LONGEST + 2, 0, 128);
    c.dataset.bos_eos = BOS_NONE, c.dataset.holdout_by = HOLDOUT_RECORD;
    c.dataset.holdout_share = share;
    int records[2];
    for (int held_out = 0; held_out < 2; held_out++) {
        int64_t n;
        char *text = expected(held_out, &n, &records[held_out]);
        struct stream *s = stream_open(corpus, &c, held_out ? STREAM_HELD_OUT : STREAM_TRAIN);
        tap_ok(stream_is(s, text, n), "the %s part is the %d records whose names say so",
               held_out ? "held-out" : "training", records[held_out]);
        stream_close(s);
        memory_free(text);
    }
    /* binomial: 80 of 400, standard deviation 8 */
    tap_ok(records[0] + records[1] == RECORDS && abs(records[1] - 80) <= 24,
           "%d of %d records are held out, for a share of %.1f", records[1], RECORDS, share);
    corpus_close(corpus);
    unlink(fasta), unlink(packed), rmdir(folder);
    memory_free(fasta);
    memory_free(packed);
    return tap_close();
}
