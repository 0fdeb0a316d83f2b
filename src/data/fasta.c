/* Lines come in pieces (data/reader.h), so a chromosome on one line costs no memory. A piece of
 * letters only, nearly every one, is checked and copied in one loop that the compiler makes vectors
 * of; any other goes through a table, byte by byte. */
#include "config.h"
#include "data/fasta.h"
#include "base/memory.h"
#include <string.h>

enum byte_class { REFUSED, LETTER, BLANK };

struct parser {
    struct reader *in;
    struct records *out;
    unsigned char class[256];
    char *name; /* of the record being read */
    size_t n_name, name_room;
    int in_name, open;     /* within the first word of a header; there has been a header */
    int64_t width, n_line; /* tokens of the record's first line (-1: none yet) and of this one */
    int64_t last_width;    /* of the line before, if it differs from the first; else -1 */
};

static void parser_open(struct parser *p, struct reader *in, enum alphabet_kind alphabet,
                        struct records *out) {
    memset(p, 0, sizeof *p);
    p->in = in, p->out = out;
    for (int c = 0; c < 256; c++) {
        int letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        int visible = c > 32 && c != 127 && c != '>';
        p->class[c] =
            letter || c == '*' || c == '-' || c == '.' || (alphabet == ALPHABET_BYTES && visible)
                ? LETTER
            : c == ' ' || c == '\t' ? BLANK
                                    : REFUSED;
    }
}

/* Copies n bytes; returns 1 if all are letters. */
static int copy_letters(unsigned char *restrict to, const unsigned char *restrict from, size_t n) {
    unsigned char other = 0;
    for (size_t i = 0; i < n; i++) {
        to[i] = from[i];
        other |= (unsigned char)((from[i] | 32) - 'a') > 'z' - 'a';
    }
    return !other;
}

/* A piece of a sequence line; returns its tokens, or -1 at what is refused. */
static int64_t add_sequence(struct parser *p, const struct piece *s) {
    unsigned char *to = records_room(p->out, s->n);
    if (copy_letters(to, s->text, s->n)) {
        records_add(p->out, s->n);
        return (int64_t)s->n;
    }
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        unsigned char c = s->text[i];
        if (p->class[c] == REFUSED) {
            char seen[16];
            reader_fail(p->in, s->line, s->column + (int64_t)i,
                        c == '>'   ? "'>' in the middle of a line: is a line end missing before it?"
                        : c == 0   ? "NUL (byte 0x00) in a sequence"
                        : c == ';' ? "';' in a sequence: comments are not FASTA"
                                   : "%s in a sequence, where letters, '*', '-' and '.' are tokens",
                        reader_show(seen, c));
            return -1;
        }
        to[n] = c;
        n += p->class[c] == LETTER;
    }
    records_add(p->out, n);
    p->out->report.dropped_spaces += (int64_t)(s->n - n);
    return (int64_t)n;
}

/* A piece of a header line, less its '>' or '@'. Its first word is the name. */
static void add_header(struct parser *p, const struct piece *h) {
    const unsigned char *nul = memchr(h->text, 0, h->n);
    if (nul) {
        reader_fail(p->in, h->line, h->column + (nul - h->text), "NUL (byte 0x00) in a header");
        return;
    }
    for (size_t i = 0; i < h->n && p->in_name; i++) {
        int blank = h->text[i] == ' ' || h->text[i] == '\t';
        if (blank && p->n_name == 0) continue;
        if (blank) {
            p->in_name = 0;
            break;
        }
        if (p->n_name == p->name_room)
            p->name = memory_resize(p->name, p->name_room = 2 * p->name_room + 64);
        p->name[p->n_name++] = (char)h->text[i];
    }
}

static void begin_record(struct parser *p) {
    p->open = p->in_name = 1;
    p->n_name = 0;
    p->width = p->last_width = -1;
}

static void end_record(struct parser *p) {
    if (!p->open) return;
    if (p->last_width > p->width) p->out->report.ragged_lines++;
    records_end(p->out, p->name, p->n_name);
}

static void end_sequence_line(struct parser *p) {
    if (p->n_line == 0) {
        p->out->report.blank_lines++;
        return;
    }
    if (p->last_width >= 0) p->out->report.ragged_lines++; /* so it was not the last */
    if (p->width < 0) p->width = p->n_line;
    p->last_width = p->n_line == p->width ? -1 : p->n_line;
}

static int all_blank(const struct parser *p, const struct piece *s) {
    for (size_t i = 0; i < s->n; i++)
        if (p->class[s->text[i]] != BLANK) return 0;
    return 1;
}

/* The first piece of a line with something on it. Returns 1 if it is a header. */
static int begin_line(struct parser *p, struct piece *s) {
    p->n_line = 0;
    if (s->text[0] == ';')
        reader_fail(p->in, s->line, s->column,
                    "a line that begins with ';': comments are not FASTA");
    if (s->text[0] != '>') return 0;
    end_record(p);
    begin_record(p);
    s->text++, s->n--, s->column++;
    return 1;
}

/* Only blanks may come before the first header. */
static void check_before_first(struct parser *p, const struct piece *s) {
    size_t i = 0;
    char seen[16];
    while (i < s->n && p->class[s->text[i]] == BLANK) i++;
    if (i < s->n)
        reader_fail(p->in, s->line, s->column + (int64_t)i,
                    s->text[i] == '>' ? "'>' in the middle of a line" : "%s before the first '>'",
                    reader_show(seen, s->text[i]));
}

static void finish(struct parser *p) {
    memory_free(p->name);
    p->out->report.cr_line_ends += reader_cr_ends(p->in);
    p->out->report.unfinished_lines += !reader_final_newline(p->in);
}

void fasta_parse(struct reader *r, enum alphabet_kind alphabet, struct records *out) {
    struct parser p;
    struct piece s;
    int header = 0;
    parser_open(&p, r, alphabet, out);
    while (reader_piece(r, &s)) {
        if (s.first && s.n == 0) {
            out->report.blank_lines++;
            continue;
        }
        if (s.first) header = begin_line(&p, &s);
        if (!p.open) check_before_first(&p, &s);
        if (reader_error(r)) break;
        if (header) {
            add_header(&p, &s);
            continue;
        }
        int64_t n = add_sequence(&p, &s);
        if (n < 0) break;
        p.n_line += n;
        if (s.last) end_sequence_line(&p);
    }
    if (reader_error(r) == NULL) end_record(&p);
    finish(&p);
}

/* The sequence, '+' and quality lines of a record; 0 at a failure. */
static int fastq_body(struct parser *p) {
    static const char *const what[] = {"sequence", "'+' line", "quality line"};
    struct piece s;
    size_t n = 0;
    char seen[16];
    for (int i = 0; i < 3; i++) {
        if (!reader_line(p->in, &s)) {
            reader_fail(p->in, reader_lines(p->in) + 1, 1,
                        "the file ends before the %s of a FASTQ record", what[i]);
            return 0;
        }
        if (i == 0) n = s.n;
        if (i == 0 && add_sequence(p, &s) < 0) return 0;
        if (i == 1 && (s.n == 0 || s.text[0] != '+'))
            reader_fail(p->in, s.line, s.column,
                        "%s where the third line of a four-line FASTQ record begins with '+'",
                        s.n ? reader_show(seen, s.text[0]) : "an empty line");
        if (i == 2 && s.n != n)
            reader_fail(p->in, s.line, s.column + (int64_t)(s.n < n ? s.n : n),
                        "%zu qualities for a sequence line of %zu characters", s.n, n);
        for (size_t k = 0; i == 2 && k < s.n; k++)
            if (s.text[k] < 32 || s.text[k] > 126) {
                reader_fail(p->in, s.line, s.column + (int64_t)k, "%s is no quality",
                            reader_show(seen, s.text[k]));
                break;
            }
        if (reader_error(p->in)) return 0;
    }
    return 1;
}

void fasta_parse_fastq(struct reader *r, enum alphabet_kind alphabet, struct records *out) {
    struct parser p;
    struct piece s;
    char seen[16];
    parser_open(&p, r, alphabet, out);
    while (reader_line(r, &s)) {
        if (all_blank(&p, &s)) {
            out->report.blank_lines++;
            out->report.dropped_spaces += (int64_t)s.n;
            continue;
        }
        if (s.text[0] != '@') {
            reader_fail(r, s.line, s.column, "%s where a FASTQ record begins with '@'",
                        reader_show(seen, s.text[0]));
            break;
        }
        s.text++, s.n--, s.column++;
        begin_record(&p);
        add_header(&p, &s);
        if (reader_error(r) || !fastq_body(&p)) break;
        end_record(&p);
    }
    finish(&p);
}
