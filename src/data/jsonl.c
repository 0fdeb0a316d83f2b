#include "config.h"
#include "data/jsonl.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/tokens.h"
#include <string.h>

enum { MAX_DEPTH = 512 };

struct text {
    unsigned char *bytes;
    size_t n, room;
};

struct scan {
    const unsigned char *p, *end; /* the rest of the line */
    const char *wrong;            /* what is wrong at p, or NULL */
    const char *field;
    struct text key, value, id;
    int has_value, has_id;
};

static int wrong(struct scan *s, const char *what) {
    if (s->wrong == NULL) s->wrong = what;
    return 0;
}

static unsigned char *text_room(struct text *t, size_t n) {
    if (t->n + n >= t->room) t->bytes = memory_resize(t->bytes, t->room = 2 * (t->n + n) + 64);
    return t->bytes + t->n;
}

static void skip_blanks(struct scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t')) s->p++;
}

static int accept(struct scan *s, char c) {
    skip_blanks(s);
    if (s->p == s->end || *s->p != c) return 0;
    s->p++;
    return 1;
}

/* Bytes of the character of UTF-8 at p, 0 if there is none (RFC 3629: shortest form, no
 * surrogates). */
static size_t utf8_length(const unsigned char *p, const unsigned char *end) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;
    if (n < 2) return n;
    if ((size_t)(end - p) < n) return 0;
    uint32_t code = *p & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    return code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : n;
}

/* Copies [p, stop), which has no quote and no backslash. */
static int scan_run(struct scan *s, const unsigned char *stop, struct text *out) {
    size_t n = (size_t)(stop - s->p);
    unsigned char *to = text_room(out, n), odd = 0;
    for (size_t i = 0; i < n; i++) {
        to[i] = s->p[i];
        odd |= (unsigned char)(s->p[i] - 32) > 127 - 32;
    }
    out->n += n;
    while (odd && s->p < stop) {
        size_t k = utf8_length(s->p, stop);
        if (*s->p < 32) return wrong(s, "a control character inside a string");
        if (k == 0) return wrong(s, "bytes that are no UTF-8");
        s->p += k;
    }
    s->p = stop;
    return 1;
}

static int scan_hex(struct scan *s, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++, s->p++) {
        int c = s->p < s->end ? *s->p : 0;
        int digit = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0) return wrong(s, "not four hexadecimal digits after \\u");
        *code = *code << 4 | (uint32_t)digit;
    }
    return 1;
}

static void put_utf8(struct text *out, uint32_t code) {
    unsigned char *to = text_room(out, 4);
    if (code < 0x80) {
        to[0] = (unsigned char)code;
        out->n += 1;
        return;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n; --i > 0; code >>= 6) to[i] = (unsigned char)(0x80 | (code & 0x3f));
    to[0] = (unsigned char)(0xf00u >> n | code); /* n ones and a zero above the first bits */
    out->n += n;
}

/* At a backslash. */
static int scan_escape(struct scan *s, struct text *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const unsigned char *start = s->p++;
    uint32_t code, low;
    const char *simple = s->p < s->end && *s->p ? strchr(from, *s->p) : NULL;
    if (simple) {
        *text_room(out, 1) = (unsigned char)to[simple - from];
        out->n++, s->p++;
        return 1;
    }
    if (s->p == s->end || *s->p++ != 'u')
        return s->p = start, wrong(s, "an escape that JSON does not have");
    if (!scan_hex(s, &code)) return 0;
    if (code >= 0xd800 && code < 0xe000) {
        if (code >= 0xdc00 || s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u')
            return s->p = start, wrong(s, "half of a surrogate pair");
        s->p += 2;
        if (!scan_hex(s, &low)) return 0;
        if (low < 0xdc00 || low >= 0xe000)
            return s->p = start, wrong(s, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    put_utf8(out, code);
    return 1;
}

static int scan_string(struct scan *s, struct text *out) {
    out->n = 0;
    if (!accept(s, '"')) return wrong(s, "something else where a string begins with '\"'");
    const unsigned char *quote = NULL;
    for (;;) {
        if (quote == NULL || quote < s->p) quote = memchr(s->p, '"', (size_t)(s->end - s->p));
        if (quote == NULL) return s->p = s->end, wrong(s, "the line ends inside a string");
        const unsigned char *escape = memchr(s->p, '\\', (size_t)(quote - s->p));
        if (!scan_run(s, escape ? escape : quote, out)) return 0;
        if (escape == NULL) break;
        if (!scan_escape(s, out)) return 0;
    }
    s->p++;
    return 1;
}

static size_t digits(struct scan *s) {
    const unsigned char *from = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') s->p++;
    return (size_t)(s->p - from);
}

static int scan_number(struct scan *s) {
    if (*s->p == '-') s->p++;
    int zero = s->p < s->end && *s->p == '0';
    size_t n = digits(s);
    int ok = n == 1 || (n > 1 && !zero);
    if (ok && s->p < s->end && *s->p == '.') s->p++, ok = digits(s) > 0;
    if (ok && s->p < s->end && (*s->p | 32) == 'e') {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-')) s->p++;
        ok = digits(s) > 0;
    }
    return ok ? 1 : wrong(s, "a number that JSON does not have");
}

static int scan_word(struct scan *s) {
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(s->end - s->p) >= n && memcmp(s->p, words[i], n) == 0) return s->p += n, 1;
    }
    return wrong(s, "something that is no JSON value");
}

/* Any value, of no interest but that it is one. */
static int scan_value(struct scan *s, int depth) {
    skip_blanks(s);
    if (s->p == s->end) return wrong(s, "the line ends where a value is due");
    if (*s->p == '"') return scan_string(s, &s->key);
    if (*s->p == '-' || (*s->p >= '0' && *s->p <= '9')) return scan_number(s);
    if (*s->p != '{' && *s->p != '[') return scan_word(s);
    if (depth == MAX_DEPTH) return wrong(s, "values nested too deeply");
    char close = *s->p++ == '{' ? '}' : ']';
    if (accept(s, close)) return 1;
    do {
        if (close == '}' && !scan_string(s, &s->key)) return 0;
        if (close == '}' && !accept(s, ':')) return wrong(s, "something else where a ':' is due");
        if (!scan_value(s, depth + 1)) return 0;
    } while (accept(s, ','));
    return accept(s, close) ? 1
                            : wrong(s, close == '}' ? "something else where ',' or '}' is due"
                                                    : "something else where ',' or ']' is due");
}

static int is(const struct text *t, const char *word) {
    return t->n == strlen(word) && memcmp(t->bytes, word, t->n) == 0;
}

static int scan_member(struct scan *s) {
    skip_blanks(s);
    const unsigned char *start = s->p;
    if (!scan_string(s, &s->key)) return 0;
    int value = is(&s->key, s->field), id = is(&s->key, "id") && !value;
    if ((value && s->has_value) || (id && s->has_id))
        return s->p = start, wrong(s, "a field for the second time");
    if (!accept(s, ':')) return wrong(s, "something else where a ':' is due");
    skip_blanks(s);
    int string = s->p < s->end && *s->p == '"';
    if (value && !string) return wrong(s, "the text field is no string");
    if (value) return s->has_value = 1, scan_string(s, &s->value);
    if (id && string) return s->has_id = 1, scan_string(s, &s->id);
    return scan_value(s, 1);
}

static int scan_object(struct scan *s) {
    if (!accept(s, '{')) return wrong(s, "something else where an object begins with '{'");
    if (!accept(s, '}')) {
        do
            if (!scan_member(s)) return 0;
        while (accept(s, ','));
        if (!accept(s, '}')) return wrong(s, "something else where ',' or '}' is due");
    }
    skip_blanks(s);
    if (s->p < s->end) return wrong(s, "text behind the object");
    return s->has_value ? 1 : wrong(s, "no text field in this object");
}

/* One line; 0 at a failure. */
static int parse_line(struct scan *s, struct reader *r, const struct piece *line,
                      struct records *out) {
    s->p = line->text, s->end = line->text + line->n;
    s->wrong = NULL;
    s->has_value = s->has_id = 0;
    s->value.n = s->id.n = 0;
    if (!scan_object(s)) {
        reader_fail(r, line->line, line->column + (s->p - line->text), "%s (text field '%s')",
                    s->wrong, s->field);
        return 0;
    }
    unsigned char low = 0, *to = records_room(out, s->value.n);
    for (size_t i = 0; i < s->value.n; i++) {
        to[i] = s->value.bytes[i];
        low |= to[i] < TOKEN_FIRST_TEXT;
    }
    if (low || (s->has_id && s->id.n && memchr(s->id.bytes, 0, s->id.n))) {
        reader_fail(r, line->line, line->column, "a character below \\u0004 in the field '%s'",
                    low ? s->field : "id");
        return 0;
    }
    records_add(out, s->value.n);
    char *name =
        s->has_id ? NULL
                  : memory_format("%s:%lld", file_basename(reader_path(r)), (long long)line->line);
    records_end(out, name ? (void *)name : s->id.bytes, name ? strlen(name) : s->id.n);
    memory_free(name);
    return 1;
}

void jsonl_parse(struct reader *r, const char *field, struct records *out) {
    struct scan s = {.field = field};
    struct piece line;
    while (reader_line(r, &line)) {
        s.p = line.text, s.end = line.text + line.n;
        skip_blanks(&s);
        if (s.p == s.end)
            out->report.blank_lines++;
        else if (!parse_line(&s, r, &line, out))
            break;
    }
    memory_free(s.key.bytes);
    memory_free(s.value.bytes);
    memory_free(s.id.bytes);
    out->report.cr_line_ends += reader_cr_ends(r);
    out->report.unfinished_lines += !reader_final_newline(r);
}
