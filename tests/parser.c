/* The readers of sequence files: every rule of what is accepted, counted and refused. Each text is
 * read whole and in slices of 1, 2, 3 and 7 bytes, plain, as gzip, as two gzip members and as
 * bgzip: all must agree. */
#include "config.h"
#include "base/memory.h"
#include "data/fasta.h"
#include "data/jsonl.h"
#include "data/ready.h"
#include "data/tokens.h"
#include "tap.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum kind { FASTA, FASTA_PROTEIN, FASTA_BYTES, FASTQ, JSONL };

/* What came out, as text: "name=TOKENS name=TOKENS ...", or the error. */
struct result {
    char *text;
    struct pack_report report;
};

static struct result parse(enum kind kind, const void *data, size_t n, size_t slice) {
    struct reader *r = reader_open_memory(data, n, "x", slice, READER_TEXT);
    struct records *out = records_new(1, -1, NULL);
    if (kind == FASTQ)
        fasta_parse_fastq(r, ALPHABET_DNA, out);
    else if (kind == JSONL)
        jsonl_parse(r, "text", out);
    else
        fasta_parse(r,
                    kind == FASTA         ? ALPHABET_DNA
                    : kind == FASTA_BYTES ? ALPHABET_BYTES
                                          : ALPHABET_PROTEIN,
                    out);
    records_flush(out);
    struct result result = {memory_string(""), out->report};
    const char *name = out->names;
    const unsigned char *tokens = out->tokens;
    for (int64_t i = 0; i < out->n; i++) {
        char *longer = memory_format("%s%s%s=%.*s", result.text, i ? " " : "", name,
                                     (int)out->length[i], (const char *)tokens);
        memory_free(result.text);
        result.text = longer;
        tokens += out->length[i];
        name += strlen(name) + 1;
    }
    if (reader_error(r)) {
        memory_free(result.text);
        result.text = memory_string(reader_error(r));
    }
    records_free(out);
    reader_close(r);
    return result;
}

/* Appends a gzip member of data[n] to `to`; with `bgzip`, the extra field with its own size, as
 * bgzip writes it. */
static size_t deflate_member(unsigned char *to, const void *data, size_t n, int bgzip) {
    unsigned char extra[6] = {'B', 'C', 2, 0, 0, 0};
    gz_header header = {.extra = extra, .extra_len = 6, .os = 255};
    z_stream z = {
        .next_in = (void *)data, .avail_in = (uInt)n, .next_out = to, .avail_out = 1 << 16};
    deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    if (bgzip) deflateSetHeader(&z, &header);
    deflate(&z, Z_FINISH);
    if (bgzip)
        to[16] = (unsigned char)(z.total_out - 1), to[17] = (unsigned char)((z.total_out - 1) >> 8);
    deflateEnd(&z);
    return z.total_out;
}

/* The forms in which data[n] may lie in a file: 0 plain, 1 gzip, 2 two members, 3 bgzip with its
 * empty last block. */
static size_t wrap(unsigned char *to, const void *data, size_t n, int form) {
    const char *text = data;
    size_t half = n / 2, m = 0;
    if (form == 0) return memcpy(to, data, n), n;
    if (form == 1) return deflate_member(to, data, n, 0);
    m = deflate_member(to, text, half, form == 3);
    m += deflate_member(to + m, text + half, n - half, form == 3);
    if (form == 3) m += deflate_member(to + m, text, 0, 1);
    return m;
}

/* Reads the text in every form and slicing; all give `want`. Returns the report of the plain one.
 */
static struct pack_report gives(enum kind kind, const void *data, size_t n, const char *want,
                                const char *what) {
    static const size_t slices[] = {0, 1, 2, 3, 7};
    static unsigned char file[1 << 18];
    struct pack_report report = {0};
    int ok = 1;
    for (int form = 0; form < 4; form++)
        for (int s = 0; s < 5; s++) {
            struct result got = parse(kind, file, wrap(file, data, n, form), slices[s]);
            if (form == 0 && s == 0) report = got.report;
            int failed =
                strncmp(want, "x:", 2) == 0 && strchr(want, ' ') == want + strcspn(want, " =");
            int same = strcmp(got.text, want) == 0 &&
                       (failed || memcmp(&report, &got.report, sizeof report) == 0);
            if (!same && ok)
                tap_note("form %d, slice %zu: got '%s', want '%s'", form, slices[s], got.text,
                         want);
            ok = ok && same;
            memory_free(got.text);
        }
    tap_ok(ok, "%s", what);
    return report;
}
#define GIVES(kind, text, want, what) gives(kind, text, sizeof(text) - 1, want, what)

static void test_accepted(void) {
    struct pack_report r =
        GIVES(FASTA, ">a first\nACGT\nAC\n>b\nggNN\n", "a=ACGTAC b=ggNN", "the plain file");
    tap_ok(r.blank_lines + r.ragged_lines + r.cr_line_ends + r.dropped_spaces + r.empty_records +
                   r.unfinished_lines + r.renamed_records ==
               0,
           "nothing is counted where nothing is odd");
    r = GIVES(FASTA, ">a first\r\nACGT\r\nAC\r\n>b\r\nggNN\r\n", "a=ACGTAC b=ggNN", "CRLF");
    tap_ok(r.cr_line_ends == 5 && r.blank_lines == 0, "CRLF counted: %lld",
           (long long)r.cr_line_ends);
    r = GIVES(FASTA, ">a first\rACGT\rAC\r>b\rggNN\r", "a=ACGTAC b=ggNN", "CR");
    tap_ok(r.cr_line_ends == 5 && r.blank_lines == 0, "CR counted: %lld",
           (long long)r.cr_line_ends);
    r = GIVES(FASTA, ">a first\nACGT\r\nAC\r>b\nggNN", "a=ACGTAC b=ggNN",
              "mixed ends and no last one");
    tap_ok(r.cr_line_ends == 2 && r.unfinished_lines == 1, "both counted");
    r = GIVES(FASTA, ">a\nAC\nGTA\nC\n>b\ngg\nN\nN\n", "a=ACGTAC b=ggNN", "ragged lines");
    tap_ok(r.ragged_lines == 2, "ragged lines counted: %lld", (long long)r.ragged_lines);
    r = GIVES(FASTA, ">a\nACG\nTACA\n>b\nA\n", "a=ACGTACA b=A", "a longer last line");
    tap_ok(r.ragged_lines == 1, "is ragged: %lld", (long long)r.ragged_lines);
    r = GIVES(FASTA, "\n\n>a\n\nACGT\n\nAC\n\n>b\nggNN\n\n", "a=ACGTAC b=ggNN", "blank lines");
    tap_ok(r.blank_lines == 6 && r.ragged_lines == 0, "blank lines counted: %lld",
           (long long)r.blank_lines);
    r = GIVES(FASTA, ">a\nAC GT\n  \n\tAC\n>b\nggNN\n", "a=ACGTAC b=ggNN",
              "spaces and tabs are dropped");
    tap_ok(r.dropped_spaces == 4 && r.blank_lines == 1, "and counted: %lld",
           (long long)r.dropped_spaces);
    GIVES(FASTA, "\xef\xbb\xbf>a\nACGTAC\n>b\nggNN\n", "a=ACGTAC b=ggNN", "byte-order mark");
    r = GIVES(FASTA, ">e\n>a\nACGTAC\n>f\n\n>a\nggNN\n>g",
              "e= a=ACGTAC f= a=ggNN g=", "empty records, equal names");
    tap_ok(r.empty_records == 3, "empty records counted: %lld", (long long)r.empty_records);
    r = GIVES(FASTA, ">\nA\n>  b x>y;z\nC\n>\tc\nG\n", "record_1=A b=C c=G",
              "names: none, behind blanks, '>' in a header");
    tap_ok(r.renamed_records == 1, "a made-up name is counted");
    GIVES(FASTA, "", "", "an empty file has no records");
    GIVES(FASTA_PROTEIN, ">p\nMKV*\n-X.\n", "p=MKV*-X.", "'*', '-' and '.' are tokens");
    GIVES(FASTA_BYTES, ">p\n(1)#\n", "p=(1)#", "the alphabet bytes takes any visible character");
}

static void test_long(void) {
    enum { N = 600000 };
    char *text = malloc(N + 8), *name = malloc(1200);
    memcpy(text, ">x\n", 3);
    for (int i = 0; i < N; i++) text[3 + i] = "ACGT"[i * 7 % 11 & 3];
    struct reader *r = reader_open_memory(text, N + 3, "x", 0, READER_TEXT);
    struct records *out = records_new(1, -1, NULL);
    fasta_parse(r, ALPHABET_DNA, out);
    tap_ok(reader_error(r) == NULL && out->n == 1 && out->length[0] == N &&
               memcmp(out->tokens, text + 3, N) == 0,
           "a line longer than every buffer");
    records_flush(out);
    int64_t sum = 0;
    for (int c = 0; c < 256; c++) sum += out->report.composition[c];
    tap_ok(sum == N && out->max_token == 'T', "composition and largest token");
    records_free(out);
    reader_close(r);
    name[0] = '>';
    memset(name + 1, 'n', 300);
    memcpy(name + 301, "\nA\n", 4);
    struct result got = parse(FASTA, name, 304, 0);
    tap_ok(strlen(got.text) == RECORD_NAME_BYTES + 2 && got.report.renamed_records == 1,
           "a long name is cut and counted");
    memory_free(got.text);
    free(text);
    free(name);
}

static void test_refused(void) {
    GIVES(FASTA, "ACGT\n>a\nACGT\n", "x:1:1: 'A' before the first '>'",
          "text before the first header");
    GIVES(FASTA, "\n  \n A\n>a\n", "x:3:2: 'A' before the first '>'", "and behind blanks");
    GIVES(FASTA, " >a\nAC\n", "x:1:2: '>' in the middle of a line", "a header behind a blank");
    GIVES(FASTA, ">a\nAC\n;c\n", "x:3:1: a line that begins with ';': comments are not FASTA",
          "a comment line");
    GIVES(FASTA, ";c\n>a\nAC\n", "x:1:1: a line that begins with ';': comments are not FASTA",
          "a comment line at the top");
    GIVES(FASTA, ">a\r\nAC;c\r\n", "x:2:3: ';' in a sequence: comments are not FASTA",
          "a comment behind a sequence");
    GIVES(FASTA, ">a\nACGT\nAC>b\nA\n",
          "x:3:3: '>' in the middle of a line: is a line end missing before it?",
          "'>' in mid-line");
    GIVES(FASTA, ">a\rACGT\rA\0C\r", "x:3:2: NUL (byte 0x00) in a sequence", "NUL");
    GIVES(FASTA, ">a\0b\nACGT\n", "x:1:3: NUL (byte 0x00) in a header", "NUL in a header");
    GIVES(FASTA, ">a\nAC1GT\n",
          "x:2:3: '1' in a sequence, where letters, '*', '-' and '.' are tokens", "a digit");
    GIVES(FASTA, ">a\nAC\x80\n",
          "x:2:3: byte 0x80 in a sequence, where letters, '*', '-' and '.' are tokens",
          "a byte above ASCII");
}

static void refused_as(const void *data, size_t n, const char *want, const char *what) {
    struct result got = parse(FASTA, data, n, 0);
    int ok = strstr(got.text, want) != NULL && strncmp(got.text, "x:", 2) == 0;
    if (!ok) tap_note("got '%s'", got.text);
    tap_ok(ok, "%s", what);
    memory_free(got.text);
}

static void test_files(void) {
    static const char text[] = ">a\nACGTTGCATTAGACCAGTAT\nACCGATTAGACCAGGTATTA\nAC";
    unsigned char file[4096], damaged[4096];
    size_t n = wrap(file, text, sizeof text - 1, 2);
    int ok = 1;
    for (size_t cut = 3; cut < n; cut++) { /* the seam between two members is a whole file */
        struct result got = parse(FASTA, file, cut, 0);
        int whole = strncmp(got.text, "a=", 2) == 0,
            place = strstr(got.text, "truncated") && strncmp(got.text, "x:", 2) == 0;
        if (whole ? strlen(got.text) >= sizeof text - 8 : !place)
            ok = 0, tap_note("cut at %zu of %zu: '%s'", cut, n, got.text);
        memory_free(got.text);
    }
    tap_ok(ok, "a gzip file cut at any byte is refused");
    n = wrap(file, text, sizeof text - 1, 1);
    refused_as(file, n - 1, "x:4:3: the gzip stream breaks off at the file's end",
               "truncation is named with line and column");
    memcpy(damaged, file, n);
    damaged[n - 6] ^= 1;
    refused_as(damaged, n, "the gzip stream is corrupt before byte", "a wrong checksum is refused");
    memcpy(damaged, file, n);
    memcpy(damaged + n, "junk", 4);
    refused_as(damaged, n + 4, "x:4:3: the gzip stream is corrupt",
               "junk behind the stream is refused");
    size_t twice = wrap(damaged, file, n, 1);
    refused_as(damaged, twice, "gzip twice", "gzip within gzip");
    refused_as("\x43\x27\x41\x1a\0\0\0\0", 8, "2bit", "2bit, little-endian");
    refused_as("\x1a\x41\x27\x43\0\0\0\0", 8, "2bit", "2bit, big-endian");
    refused_as("\x89HDF\r\n\x1a\n", 8, "HDF5", "HDF5");
    refused_as(damaged, wrap(damaged, "BAM\1aaa", 7, 3), "BAM", "BAM, which is bgzip");
    refused_as("\xff\xfe>\0a\0", 6, "UTF-16", "UTF-16");
    struct reader *r = reader_open("no/such/file", READER_TEXT);
    tap_ok(strcmp(reader_error(r), "no/such/file: cannot be opened: No such file or directory") ==
               0,
           "%s", reader_error(r));
    reader_close(r);
    r = reader_open(".", READER_TEXT);
    tap_ok(strcmp(reader_error(r), ".: is a folder") == 0, "%s", reader_error(r));
    reader_close(r);
}

static void test_fastq(void) {
    GIVES(FASTQ, "@a x\nACGT\n+\nIIII\n@b\nNN\n+b\n@@\n", "a=ACGT b=NN", "FASTQ");
    GIVES(FASTQ, "@a x\r\nACGT\r\n+\r\nIIII\r\n\r\n@b\r\nNN\r\n+b\r\n@@", "a=ACGT b=NN",
          "FASTQ, CRLF, a blank line, no last end");
    struct pack_report r =
        GIVES(FASTQ, "@a\n\n+\n\n@b\nA\n+\n!\n", "a= b=A", "FASTQ, an empty read");
    tap_ok(r.empty_records == 1 && r.blank_lines == 0, "is counted");
    GIVES(FASTQ, "@a\nACGT\n+\nIII\n", "x:4:4: 3 qualities for a sequence line of 4 characters",
          "FASTQ, too few qualities");
    GIVES(FASTQ, "@a\nACGT\nACGT\n+\n",
          "x:3:1: 'A' where the third line of a four-line FASTQ record begins with '+'",
          "FASTQ over many lines");
    GIVES(FASTQ, "@a\nACGT\n+\n", "x:4:1: the file ends before the quality line of a FASTQ record",
          "FASTQ, truncated");
    GIVES(FASTQ, "@a\nA\n+\nI\nb\n", "x:5:1: 'b' where a FASTQ record begins with '@'",
          "FASTQ, no '@'");
    GIVES(FASTQ, "@a\nA\n+\n\x7f\n", "x:4:1: byte 0x7f is no quality", "FASTQ, no quality");
    GIVES(FASTQ, "@a\nA>\n+\nII\n",
          "x:2:2: '>' in the middle of a line: is a line end missing before it?",
          "FASTQ, no letter");
}

static void test_jsonl(void) {
    GIVES(JSONL,
          "{\"text\":\"ACGT\"}\n{ \"id\" : \"r2\", \"n\":[1,-2.5e3,{\"a\":null}], \"text\" : "
          "\"ac\" }\n",
          "x:1=ACGT r2=ac", "JSON lines");
    struct pack_report r =
        GIVES(JSONL, "{\"text\":\"A\"}\r\n\r\n{\"text\":\"\",\"id\":7}\r\n{\"text\":\"C\"}",
              "x:1=A x:3= x:4=C", "JSON lines, CRLF, blank, empty, no last end");
    tap_ok(r.blank_lines == 1 && r.empty_records == 1 && r.unfinished_lines == 1 &&
               r.cr_line_ends == 3,
           "are counted");
    GIVES(JSONL, "{\"text\":\"|d__B;p__|AC GT@\\n\\u0041\\\"\\\\\\/\"}\n",
          "x:1=|d__B;p__|AC GT@\nA\"\\/", "the text is kept as it stands");
    GIVES(JSONL, "{\"text\":\"\\u00e9\\ud83d\\ude00\xc3\xa9\"}\n",
          "x:1=\xc3\xa9\xf0\x9f\x98\x80\xc3\xa9", "escapes and UTF-8");
    GIVES(JSONL, "{\"text\":\"A\"}\n{\"txt\":\"A\"}\n",
          "x:2:12: no text field in this object (text field 'text')", "no text field");
    GIVES(JSONL, "{\"text\":1}\n", "x:1:9: the text field is no string (text field 'text')",
          "a text that is no string");
    GIVES(JSONL, "{\"text\":\"A\",\"text\":\"B\"}\n",
          "x:1:13: a field for the second time (text field 'text')", "two texts");
    GIVES(JSONL, "{\"text\":\"A\"\n",
          "x:1:12: something else where ',' or '}' is due (text field 'text')",
          "a line that ends early");
    GIVES(JSONL, "{\"text\":\"A\n", "x:1:11: the line ends inside a string (text field 'text')",
          "a string that does not end");
    GIVES(JSONL, "{\"text\":\"A\"} x\n", "x:1:14: text behind the object (text field 'text')",
          "text behind the object");
    GIVES(JSONL, "[1]\n",
          "x:1:1: something else where an object begins with '{' (text field 'text')", "no object");
    GIVES(JSONL, "{\"a\":01,\"text\":\"A\"}\n",
          "x:1:8: a number that JSON does not have (text field 'text')",
          "a number with a leading zero");
    GIVES(JSONL, "{\"a\":1\0,\"text\":\"A\"}\n",
          "x:1:7: something else where ',' or '}' is due (text field 'text')",
          "NUL behind a number");
    GIVES(JSONL, "{\"a\":tru,\"text\":\"A\"}\n",
          "x:1:6: something that is no JSON value (text field 'text')", "no value");
    GIVES(JSONL, "{\"text\":\"A\tC\"}\n",
          "x:1:11: a control character inside a string (text field 'text')", "a bare tab");
    GIVES(JSONL, "{\"text\":\"A\xff\"}\n", "x:1:11: bytes that are no UTF-8 (text field 'text')",
          "no UTF-8");
    GIVES(JSONL, "{\"text\":\"\\ud800\"}\n", "x:1:10: half of a surrogate pair (text field 'text')",
          "half a surrogate pair");
    GIVES(JSONL, "{\"text\":\"A\\u0000\"}\n",
          "x:1:1: a character below \\u0004 in the field 'text'", "a control token in the text");
    static char deep[2000] = "{\"a\":";
    memset(deep + 5, '[', sizeof deep - 5);
    GIVES(JSONL, deep, "x:1:517: values nested too deeply (text field 'text')",
          "deep nesting is refused");
}

static void ready(const void *data, size_t n, int width, uint32_t eos, const char *want,
                  const char *what) {
    struct reader *r = reader_open_memory(data, n, "d/x", 0, READER_BYTES);
    struct records *out = records_new(width, -1, NULL);
    ready_parse(r, eos, out);
    char text[256];
    int at = 0;
    const char *name = out->names;
    for (int64_t i = 0; i < out->n; i++, name += strlen(name) + 1)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s=%lld ", name,
                       (long long)out->length[i]);
    snprintf(text + at, sizeof text - (size_t)at, "unfinished=%lld",
             (long long)out->report.unfinished_lines);
    if (reader_error(r)) snprintf(text, sizeof text, "%s", reader_error(r));
    if (strcmp(text, want) != 0) tap_note("got '%s'", text);
    records_flush(out);
    tap_ok(strcmp(text, want) == 0, "%s", what);
    records_free(out);
    reader_close(r);
}

static void test_ready(void) {
    static const uint16_t two[] = {5, 6, 50000, 9, 9, 50000, 50000, 7};
    static const uint32_t four[] = {70000, 1, 0, 2, 0};
    ready(two, sizeof two, 2, 50000, "x:1=2 x:2=2 x:3=0 x:4=1 unfinished=1", "u16 tokens");
    ready(four, sizeof four, 4, 0, "x:1=2 x:2=1 unfinished=0", "u32 tokens");
    ready("ab\0c\0", 5, 1, 0, "x:1=2 x:2=1 unfinished=0", "u8 tokens");
    ready(two, 15, 2, 50000, "d/x: 15 bytes are no whole number of 2-byte tokens",
          "half a token is refused");
    ready("", 0, 1, 0, "unfinished=0", "an empty token file");
}

static void test_tokens(void) {
    const unsigned char *dna = tokens_complement(ALPHABET_DNA),
                        *rna = tokens_complement(ALPHABET_RNA);
    static const char from[] = "ACGTRYSWKMBDHVNacgtryswkmbdhvn-*",
                      to[] = "TGCAYRSWMKVHDBNtgcayrswmkvhdbn-*";
    int ok = 1;
    for (size_t i = 0; i < sizeof from; i++)
        ok = ok && dna[(unsigned char)from[i]] == (unsigned char)to[i];
    for (int c = 0; c < 256; c++)
        ok = ok && (c == 'U' || c == 'u' || dna[dna[c]] == c) &&
             (c == 'T' || c == 't' || rna[rna[c]] == c);
    tap_ok(ok && rna['A'] == 'U' && rna['U'] == 'A' && dna[200] == 200, "complements");
    tap_ok(tokens_complement(ALPHABET_PROTEIN) == NULL && tokens_complement(ALPHABET_BYTES) == NULL,
           "proteins have none");
    tap_ok(tokens_alphabet("rna") == ALPHABET_RNA && tokens_alphabet("DNA") == -1 &&
               strlen(tokens_letters(ALPHABET_PROTEIN)) == 20 &&
               strcmp(tokens_alphabet_name(ALPHABET_BYTES), "bytes") == 0,
           "alphabets by name");
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    test_accepted();
    test_long();
    test_refused();
    test_files();
    test_fastq();
    test_jsonl();
    test_ready();
    test_tokens();
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
