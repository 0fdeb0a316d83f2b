#include "config.h"
#include "config/value.h"
#include "config/entries.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MOST_SOURCES = 4096, MOST_PATH_BYTES = 4096 };

static void *member(const struct config *c, const struct field *f) {
    return (char *)c + f->offset;
}

/* "'10x' is not a whole number" */
static char *is_not(const char *value, const char *what) {
    char *shown = entries_quote(value), *problem = memory_format("'%s' is not %s", shown, what);
    memory_free(shown);
    return problem;
}

/* Digits may be grouped as in 500_000: the copy is without the marks. */
static char *without_marks(const char *s) {
    char *copy = memory_string(s), *to = copy;
    for (const char *p = s; *p; p++) {
        int mark =
            *p == '_' && p > s && isdigit((unsigned char)p[-1]) && isdigit((unsigned char)p[1]);
        if (!mark) *to++ = *p;
    }
    *to = 0;
    return copy;
}

static char *check_range(const struct field *f, double x, const char *value) {
    char limit[48];
    int low = f->range & RANGE_ABOVE_MIN ? x <= f->min : x < f->min;
    int high = f->range & RANGE_BELOW_MAX ? x >= f->max : x > f->max;
    if (!low && !high) return NULL;
    text_real(limit, sizeof limit, low ? f->min : f->max);
    const char *what = low ? (f->range & RANGE_ABOVE_MIN ? "not above" : "below")
                           : (f->range & RANGE_BELOW_MAX ? "not below" : "above");
    char *shown = entries_quote(value);
    char *problem = memory_format("'%s' is %s %s", shown, what, limit);
    memory_free(shown);
    return problem;
}

static char *set_number(struct config *c, const struct field *f, const char *value) {
    char *digits = without_marks(value), *problem = NULL;
    int64_t i;
    double x;
    if (f->type == FIELD_INT) {
        if (!text_to_int(digits, &i))
            problem = is_not(value, "a whole number");
        else if (!(problem = check_range(f, (double)i, value)))
            *(int64_t *)member(c, f) = i;
    } else if (f->type == FIELD_UINT) {
        if (!text_to_uint(digits, member(c, f)))
            problem = is_not(value, "a whole number from 0 to 18446744073709551615");
    } else {
        if (!text_to_real(digits, &x))
            problem = is_not(value, "a finite number");
        else if (!(problem = check_range(f, x, value)))
            *(double *)member(c, f) = x + 0.0; /* no -0 */
    }
    memory_free(digits);
    return problem;
}

/* Word i of "a|b|c"; its length, 0 when there is none. */
static size_t word_at(const char *words, int i, const char **word) {
    for (; i > 0 && words; i--) words = strchr(words, '|') ? strchr(words, '|') + 1 : NULL;
    *word = words;
    return words ? strcspn(words, "|") : 0;
}

static char *set_word(struct config *c, const struct field *f, const char *value) {
    const char *word;
    int boolean = f->type == FIELD_BOOL ||
                  strstr(f->words, "false|true"); /* False and True as Python writes them */
    for (int i = 0;; i++) {
        size_t n = word_at(f->words, i, &word);
        if (n == 0) break;
        if (strlen(value) != n || (boolean ? strncasecmp : strncmp)(word, value, n) != 0) continue;
        *(int *)member(c, f) = i;
        return NULL;
    }
    char range[96], what[120];
    if (f->type == FIELD_BOOL) return is_not(value, "true or false");
    snprintf(what, sizeof what, "one of %s", field_range(range, sizeof range, f));
    return is_not(value, what);
}

static char *check_text(const char *value) {
    uint32_t code;
    const char *p = value;
    for (int n; (n = text_utf8(p, &code)) > 0;) p += n;
    if (*p) return memory_string("a text that is not UTF-8");
    if (value[0] == 0) return memory_string("an empty text");
    return strlen(value) > MOST_PATH_BYTES ? memory_string("a text that is too long") : NULL;
}

static char *set_text(char **member_text, const char *value, const char *folder) {
    char *problem = check_text(value);
    if (problem) return problem;
    while (folder && value[0] == '.' && value[1] == '/') value += 2;
    char *text = folder ? file_join(folder, value) : memory_string(value);
    memory_free(*member_text);
    *member_text = text;
    return NULL;
}

char *value_add_word(struct config *c, const struct field *f, const char *word) {
    char **text = member(c, f);
    if (word == NULL || strpbrk(word, " \t\n")) return memory_string("an item that is not a word");
    char *all = *text ? memory_format("%s %s", *text, word) : memory_string(word),
         *problem = set_text(text, all, NULL);
    memory_free(all);
    return problem;
}

char *value_set(struct config *c, const struct field *f, const char *value, const char *folder) {
    int is_null = value == NULL;
    if (f->zero && (is_null || strcmp(value, f->zero) == 0)) {
        if (is_null && strcmp(f->zero, "null") != 0)
            return memory_format("no value given; '%s' is its default", f->zero);
        if (f->type == FIELD_INT)
            *(int64_t *)member(c, f) = 0;
        else
            value_free(c, f);
        return NULL;
    }
    if (is_null) return memory_string("no value given");
    switch (f->type) {
    case FIELD_INT:
    case FIELD_UINT:
    case FIELD_REAL:
        return set_number(c, f, value);
    case FIELD_BOOL:
    case FIELD_ENUM:
        return set_word(c, f, value);
    case FIELD_TEXT:
    case FIELD_WORDS:
        return set_text(member(c, f), value, NULL);
    case FIELD_PATH:
        return set_text(member(c, f), value, folder);
    case FIELD_SOURCES:
        return is_not(value, "a list of {path, weight}");
    }
    return NULL;
}

char *value_set_source(struct config *c, size_t i, const char *part, const char *value,
                       const char *folder) {
    size_t n = c->dataset.n_sources;
    if (i > n || i >= MOST_SOURCES) return memory_string("not the next item of the list");
    if (i == n) {
        c->dataset.sources =
            memory_resize(c->dataset.sources, (n + 1) * sizeof *c->dataset.sources);
        c->dataset.sources[c->dataset.n_sources++] = (struct config_source){NULL, 0};
    }
    struct config_source *s = &c->dataset.sources[i];
    if (value == NULL) return memory_string("no value given");
    if (strcmp(part, "path") == 0)
        return s->path ? memory_string("given twice") : set_text(&s->path, value, folder);
    if (strcmp(part, "weight") != 0)
        return memory_string("unknown key; an item of the list has path and weight");
    if (s->weight > 0) return memory_string("given twice");
    if (!text_to_real(value, &s->weight)) return is_not(value, "a finite number");
    if (s->weight > 0 && s->weight <= 1e9) return NULL;
    s->weight = 0;
    return is_not(value, "above 0 and at most 1000000000");
}

void value_clear_sources(struct config *c) {
    for (size_t i = 0; i < c->dataset.n_sources; i++) memory_free(c->dataset.sources[i].path);
    memory_free(c->dataset.sources);
    c->dataset.sources = NULL;
    c->dataset.n_sources = 0;
}

void value_free(struct config *c, const struct field *f) {
    if (f->type == FIELD_SOURCES) value_clear_sources(c);
    if (f->type != FIELD_TEXT && f->type != FIELD_PATH && f->type != FIELD_WORDS) return;
    char **text = member(c, f);
    memory_free(*text);
    *text = NULL;
}

/* In double quotes, escaped so that any YAML reader gives the same characters back: what is not
 * printable, and the line breaks of Unicode, which YAML would fold. */
static char *quote(const char *s) {
    char *out = memory_alloc(10 * strlen(s) + 3), *to = out;
    uint32_t code;
    *to++ = '"';
    for (int n; (n = text_utf8(s, &code)) > 0; s += n) {
        int printable = (code >= 0x20 && code < 0x7f) || (code >= 0xa1 && code < 0x2000) ||
                        (code >= 0x2070 && code < 0xd800);
        if (code == '"' || code == '\\')
            *to++ = '\\', *to++ = (char)code;
        else if (printable)
            to = memcpy(to, s, (size_t)n), to += n;
        else
            to += sprintf(to, "\\U%08X", (unsigned)code);
    }
    *to++ = '"';
    *to = 0;
    return out;
}

char *value_source_text(const struct config_source *s) {
    char weight[40], *path = quote(s->path);
    char *text =
        memory_format("{path: %s, weight: %s}", path, text_real(weight, sizeof weight, s->weight));
    memory_free(path);
    return text;
}

static char *sources_text(const struct config *c) {
    char *all = memory_string("[");
    for (size_t i = 0; i < c->dataset.n_sources; i++) {
        char *one = value_source_text(&c->dataset.sources[i]);
        char *more = memory_format("%s%s%s", all, i ? ", " : "", one);
        memory_free(one);
        memory_free(all);
        all = more;
    }
    char *text = memory_format("%s]", all);
    memory_free(all);
    return text;
}

char *value_text(const struct config *c, const struct field *f, int quoted) {
    char number[40];
    const char *word;
    const void *m = member(c, f);
    const char *text;
    switch (f->type) {
    case FIELD_INT:
        if (f->zero && *(const int64_t *)m == 0) return memory_string(f->zero);
        return memory_format("%lld", (long long)*(const int64_t *)m);
    case FIELD_UINT:
        return memory_format("%llu", (unsigned long long)*(const uint64_t *)m);
    case FIELD_REAL:
        return memory_string(text_real(number, sizeof number, *(const double *)m));
    case FIELD_BOOL:
    case FIELD_ENUM: {
        size_t n = word_at(f->words, *(const int *)m, &word);
        return memory_format("%.*s", (int)n, n ? word : "");
    }
    case FIELD_TEXT:
    case FIELD_PATH:
    case FIELD_WORDS:
        text = *(char *const *)m;
        return text == NULL ? memory_string("null") : quoted ? quote(text) : memory_string(text);
    case FIELD_SOURCES:
        return c->dataset.n_sources ? sources_text(c) : memory_string("null");
    }
    return NULL;
}
