/* Files are parsed one by one into spools, since the size of a contiguous dataset must be known
 * before its first token; then the spools are copied into the corpus, record by record in their
 * final order. The second pass costs little beside decompression, and lets every rank parse files
 * of its own. */
#include "config.h"
#include "data/pack.h"
#include "base/die.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "data/corpus.h"
#include "data/reader.h"
#include "data/spool.h"
#include "data/tokens.h"
#include "grid/watchdog.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { COPY_BYTES = 1 << 20, OVERHEAD_BYTES = 64 << 10 /* of HDF5 and attributes, about */ };

static char *spool_name(const char *output, long tag, int i) {
    return memory_format("%s.%ld.%d.tmp", output, tag, i);
}

char *pack_file(const char *file, int i, const char *output, long tag,
                const struct pack_options *options, int *code) {
    char *spool = spool_name(output, tag, i);
    char *error = spool_make(file, spool, options, code);
    memory_free(spool);
    return error;
}

void pack_clean(int n, const char *output, long tag) {
    for (int i = 0; i < n; i++) {
        char *spool = spool_name(output, tag, i);
        unlink(spool);
        memory_free(spool);
    }
}

/* The records of all spools in their final order. */
struct table {
    int n;
    struct spool **spools;           /* [n] */
    const unsigned char **at;        /* [n_records] where their tokens lie in a spool */
    struct corpus_contents contents; /* its arrays are the ones below */
    int64_t *offset, *length;
    uint32_t *source;
    char *names;
};

static int compare_hashes(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Records whose name an earlier one has, by 64-bit hashes. */
static int64_t count_duplicates(const struct table *t) {
    size_t n = (size_t)t->contents.n_records, width = (size_t)t->contents.name_bytes;
    uint64_t *hash = memory_alloc_array(n, sizeof *hash);
    for (size_t i = 0; i < n; i++) hash[i] = XXH3_64bits(t->names + i * width, width);
    qsort(hash, n, sizeof *hash, compare_hashes);
    int64_t duplicates = 0;
    for (size_t i = 1; i < n; i++) duplicates += hash[i] == hash[i - 1];
    memory_free(hash);
    return duplicates;
}

/* Adds what was met in one file to the whole: both are counters only, but for the last member. */
static void add_report(struct pack_report *sum, const struct pack_report *one) {
    int64_t *to = (int64_t *)sum;
    const int64_t *from = (const int64_t *)one;
    for (size_t i = 0; i < offsetof(struct pack_report, seconds) / sizeof *to; i++)
        to[i] += from[i];
}

static void measure(struct table *t, struct pack_report *report) {
    size_t longest = 0;
    for (int i = 0; i < t->n; i++) {
        const struct spool *s = t->spools[i];
        const char *name = s->names;
        t->contents.n_records += s->summary.n_records;
        t->contents.n_tokens += s->summary.n_tokens;
        if (s->summary.max_token > t->contents.max_token)
            t->contents.max_token = s->summary.max_token;
        for (int64_t k = 0; k < s->summary.n_records; k++) {
            size_t bytes = strlen(name);
            if (bytes > longest) longest = bytes;
            name += bytes + 1;
        }
        add_report(report, &s->summary.report);
        report->bytes_in += s->summary.bytes;
    }
    t->contents.name_bytes = (int)longest;
    report->files = t->n;
    report->records = t->contents.n_records;
    report->tokens = t->contents.n_tokens;
}

static void fill_table(struct table *t, const struct pack_options *o) {
    int64_t n = t->contents.n_records, i = 0, at = 0;
    size_t width = (size_t)t->contents.name_bytes;
    uint64_t key = random_bits(o->seed, RANDOM_SHUFFLE, 0);
    t->at = memory_alloc_array((size_t)n, sizeof *t->at);
    t->offset = memory_alloc_array((size_t)n, sizeof *t->offset);
    t->length = memory_alloc_array((size_t)n, sizeof *t->length);
    t->source = memory_alloc_array((size_t)n, sizeof *t->source);
    t->names = memory_alloc_array((size_t)n, width);
    for (int f = 0; f < t->n; f++) {
        const struct spool *s = t->spools[f];
        const unsigned char *tokens = s->tokens;
        const char *name = s->names;
        for (int64_t k = 0; k < s->summary.n_records; k++, i++) {
            int64_t to = o->shuffle ? (int64_t)random_permute(key, (uint64_t)i, (uint64_t)n) : i;
            size_t bytes = strlen(name);
            t->at[to] = tokens;
            t->length[to] = s->length[k];
            t->source[to] = (uint32_t)f;
            memcpy(t->names + (size_t)to * width, name, bytes);
            tokens += s->length[k] * t->contents.token_bytes;
            name += bytes + 1;
        }
    }
    for (i = 0; i < n; i++) t->offset[i] = at, at += t->length[i];
    t->contents.offset = t->offset, t->contents.length = t->length;
    t->contents.source = t->source, t->contents.names = t->names;
}

char *pack_check_letters(const char *file, const int64_t *count, enum alphabet_kind alphabet,
                         struct pack_report *report) {
    const char *usual = tokens_usual_letters(alphabet);
    int64_t letters = 0, other = 0, most = 0;
    int which = 0;
    for (int c = 'A'; c <= 'Z'; c++) {
        int64_t n = count[c] + count[c | 32];
        report->lowercase += count[c | 32];
        letters += n;
        if (usual[0] == 0 || strchr(usual, c)) continue;
        other += n;
        if (n > most) most = n, which = c;
    }
    report->other_letters += other;
    if ((alphabet != ALPHABET_DNA && alphabet != ALPHABET_RNA) || other * 5 <= letters) return NULL;
    return memory_format(
        "%s: %.0f %% of its letters are not of the alphabet %s, most often '%c' (%lld times): "
        "say what it holds by dataset.alphabet (pack: --alphabet): dna, rna, protein or bytes",
        file, 100.0 * (double)other / (double)letters, tokens_alphabet_name(alphabet), which,
        (long long)most);
}

static char *check_all(const char *const *files, const struct table *t,
                       const struct pack_options *o, struct pack_report *report) {
    if (t->contents.n_records == 0)
        return memory_format("%s%s: no records", files[0], t->n > 1 ? " and the others" : "");
    if (t->contents.n_tokens == 0)
        return memory_format("%s%s: no tokens, all %lld records are empty", files[0],
                             t->n > 1 ? " and the others" : "", (long long)t->contents.n_records);
    for (int i = 0; i < t->n && o->token_bytes == 0; i++) {
        char *error = pack_check_letters(files[i], t->spools[i]->summary.report.composition,
                                         o->alphabet, report);
        if (error) return error;
    }
    return NULL;
}

/* Copies the records one after the other; small ones are gathered. */
static int copy_tokens(const struct table *t, int fd, int64_t place) {
    unsigned char *buffer = memory_alloc(COPY_BYTES);
    size_t used = 0;
    int ok = 1;
    for (int64_t i = 0; ok && i < t->contents.n_records; i++) {
        size_t bytes = (size_t)t->length[i] * (size_t)t->contents.token_bytes;
        if (used + bytes > COPY_BYTES) {
            ok = file_write_all_at(fd, buffer, used, place);
            place += (int64_t)used, used = 0;
            watchdog_progress();
        }
        if (bytes > COPY_BYTES) {
            ok = ok && file_write_all_at(fd, t->at[i], bytes, place);
            place += (int64_t)bytes;
        } else if (bytes) {
            memcpy(buffer + used, t->at[i], bytes);
            used += bytes;
        }
    }
    ok = ok && file_write_all_at(fd, buffer, used, place);
    int reason = errno;
    memory_free(buffer);
    errno = reason;
    return ok;
}

/* Whether there is room for the corpus, asked of the file system where it can tell: HDF5 meets a
 * full disk in the middle of its own business and would leave a file behind. */
static int has_room(const char *path, const struct table *t) {
    int64_t record_bytes =
        t->contents.name_bytes + 2 * (int64_t)sizeof *t->offset + (int64_t)sizeof *t->source;
    int64_t bytes = OVERHEAD_BYTES + t->contents.n_tokens * t->contents.token_bytes +
                    t->contents.n_records * record_bytes;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int ok = fd >= 0 &&
             (fallocate(fd, 0, 0, (off_t)bytes) == 0 || errno == EOPNOTSUPP || errno == ENOSYS);
    int reason = errno;
    if (fd >= 0) close(fd);
    errno = reason;
    return ok;
}

static void write_corpus(const struct table *t, const char *output, long tag) {
    char *temporary = memory_format("%s.%ld.tmp", output, tag);
    int ok = has_room(temporary, t), fd = -1, reason = errno;
    if (ok) {
        int64_t place = corpus_create(temporary, &t->contents);
        fd = open(temporary, O_WRONLY | O_CLOEXEC);
        ok = fd >= 0 && copy_tokens(t, fd, place) && fsync(fd) == 0;
        reason = errno;
    }
    if (fd >= 0) close(fd);
    if (ok && rename(temporary, output) != 0) ok = 0, reason = errno;
    if (!ok) {
        unlink(temporary);
        die_io("cannot write %s: %s", output, strerror(reason));
    }
    memory_free(temporary);
}

void pack_join(const char *const *files, int n, const char *output, long tag,
               const struct pack_options *o, struct pack_report *report) {
    struct table t = {.n = n, .spools = memory_alloc_array((size_t)n, sizeof *t.spools)};
    struct corpus_source *sources = memory_alloc_array((size_t)n, sizeof *sources);
    t.contents =
        (struct corpus_contents){.token_bytes = o->token_bytes ? o->token_bytes : 1,
                                 .sources = sources,
                                 .n_sources = n,
                                 .alphabet = o->token_bytes ? ALPHABET_BYTES : (int)o->alphabet,
                                 .ready = o->token_bytes > 0,
                                 .eos = o->token_bytes ? (int)o->eos : TOKEN_EOS,
                                 .shuffled = o->shuffle,
                                 .seed = o->seed};
    memset(report, 0, sizeof *report);
    for (int i = 0; i < n; i++) {
        char *spool = spool_name(output, tag, i);
        t.spools[i] = spool_open(spool);
        sources[i] = (struct corpus_source){(char *)files[i], t.spools[i]->summary.bytes,
                                            t.spools[i]->summary.modified, ""};
        memcpy(sources[i].checksum, t.spools[i]->summary.checksum, sizeof sources[i].checksum);
        memory_free(spool);
    }
    pack_clean(n, output, tag); /* they stay mapped, and nothing is left behind whatever happens */
    measure(&t, report);
    char *error = check_all(files, &t, o, report);
    if (error) die_user(EXIT_DATA, "%s", error);
    fill_table(&t, o);
    report->duplicate_names = count_duplicates(&t);
    write_corpus(&t, output, tag);
    for (int i = 0; i < n; i++) spool_close(t.spools[i]);
    memory_free(t.names);
    memory_free(t.source);
    memory_free(t.length);
    memory_free(t.offset);
    memory_free(t.at);
    memory_free(t.spools);
    memory_free(sources);
}

void pack_files(const char *const *files, int n, const char *output, const struct pack_options *o,
                struct pack_report *report) {
    double start = log_seconds();
    long tag = (long)getpid();
    int code;
    if (n > CORPUS_MAX_SOURCES)
        die_user(EXIT_DATA, "%d files: a corpus has at most %d sources", n, CORPUS_MAX_SOURCES);
    for (int i = 0; i < n; i++) {
        char *error = pack_file(files[i], i, output, tag, o, &code);
        if (error == NULL) continue;
        pack_clean(n, output, tag);
        die_user(code, "%s", error);
    }
    pack_join(files, n, output, tag, o, report);
    report->seconds = log_seconds() - start;
}
