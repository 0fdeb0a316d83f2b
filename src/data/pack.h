/* From what people have (FASTA, FASTQ, JSONL, plain, gzip or bgzip; ready token files) to a packed
 * corpus. */
#ifndef REGULON_DATA_PACK_H
#define REGULON_DATA_PACK_H
#include "config/config.h"
#include "data/records.h"
#include <stdint.h>
#include <stdio.h>

struct pack_options {
    enum alphabet_kind alphabet;
    const char *text_field; /* JSONL */
    int jsonl;              /* every file is JSONL; otherwise told by the first byte */
    int token_bytes;        /* > 0: ready tokens of so many bytes, records end at eos */
    int64_t eos;
    int shuffle; /* shuffle the records by seed */
    uint64_t seed;
};

/* Packs files[n] into `output` (temporary name, fsync, rename). On one rank. die_user (65) on bad
 * data with file, line and column; the output is then untouched. */
void pack_files(const char *const *files, int n, const char *output,
                const struct pack_options *options, struct pack_report *report);

/* Reads text to the end of r, in its kind, which is told by its first byte that is no blank, and
 * adds its records of one-byte tokens to `out`; reader_error(r) says why it ended early. */
struct reader;
void pack_parse(struct reader *r, const struct pack_options *options, struct records *out);

/* Why a file whose letters occur composition[256] times does not look like its alphabet, or NULL;
 * counts its letters into the report. The caller frees it. */
char *pack_check_letters(const char *file, const int64_t *composition, enum alphabet_kind alphabet,
                         struct pack_report *report);

/* The packed form of `path`: path itself if it is a corpus, else a cache under `cache_folder`, made
 * now unless an up-to-date one lies there (source's size, time and checksum). On one rank; the
 * caller frees the name. */
char *pack_cached(const char *path, const char *cache_folder, const struct pack_options *options);

/* The two halves of pack_files, for several ranks: pack_file parses file i of a pack into its spool
 * and returns what is wrong with it (to be freed), or NULL, with the exit code; pack_join makes one
 * corpus of the n spools (die_user 65) and removes them. `tag` is the same on all ranks and makes
 * the temporary names unique. */
char *pack_file(const char *file, int i, const char *output, long tag,
                const struct pack_options *options, int *code);
void pack_join(const char *const *files, int n, const char *output, long tag,
               const struct pack_options *options, struct pack_report *report);
void pack_clean(int n, const char *output, long tag); /* removes what is there of the n spools */

/* `regulon pack`: collective; with several ranks, files are read by several. Returns the exit code.
 */
int pack_main(int argc, char **argv);
#endif
