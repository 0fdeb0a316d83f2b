/* From what people have (FASTA, FASTQ, JSONL, plain, gzip or bgzip; ready token files) to a packed
 * corpus. */
#ifndef REGULON_DATA_PACK_H
#define REGULON_DATA_PACK_H
#include "config/config.h"
#include <stdint.h>
#include <stdio.h>

struct pack_options {
    enum alphabet_kind alphabet;
    const char *text_field; /* JSONL */
    int token_bytes;        /* > 0: ready tokens of so many bytes, records end at eos */
    int64_t eos;
    int shuffle; /* shuffle the records by seed */
    uint64_t seed;
};

/* What was read, kept, dropped and renamed; the report of `regulon pack`. */
struct pack_report {
    int64_t records, tokens, empty_records, duplicate_names, dropped_spaces, lowercase,
        other_letters;
    int64_t bytes_in; /* of the files as they lie on disk */
    double seconds;
};

/* Packs files[n] into `output` (temporary name, fsync, rename). On one rank. die_user (65) on bad
 * data with file, line and column; the output is then untouched. */
void pack_files(const char *const *files, int n, const char *output,
                const struct pack_options *options, struct pack_report *report);

/* The packed form of `path`: path itself if it is a corpus, else a cache under `cache_folder`, made
 * now unless an up-to-date one lies there (source's size, time and checksum). On one rank; the
 * caller frees the name. */
char *pack_cached(const char *path, const char *cache_folder, const struct pack_options *options);

/* `regulon pack`: collective; with several ranks, files are read by several. Returns the exit code.
 */
int pack_main(int argc, char **argv);
#endif
