#include "config.h"
#include "config/build.h"
#include "base/die.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/check.h"
#include "config/fields.h"
#include "config/recipe.h"
#include "config/value.h"
#include "config/yaml.h"
#include <string.h>

struct config *build_defaults(void) {
    struct config *c = memory_alloc(sizeof *c);
    for (size_t i = 0; i < n_fields; i++) {
        const char *text = fields[i].initial;
        if (text == NULL) continue;
        char *problem = value_set(c, &fields[i], strcmp(text, "null") == 0 ? NULL : text, NULL);
        if (problem) die("%s: default: %s", fields[i].key, problem);
    }
    return c;
}

/* What was named so far in one list: the line of each key and section, -1 before. */
struct seen {
    int *field_line;
    struct {
        const char *name;
        int line;
    } section[32];
    size_t n_sections;
};

static char *twice(int line) {
    return line > 0 ? memory_format("given twice, first in line %d", line)
                    : memory_string("given twice");
}

static char *unknown_key(const char *key) {
    char *answer = recipe_answer(key);
    if (answer) return answer;
    const char *nearest = field_nearest(key);
    return nearest ? memory_format("unknown key; did you mean %s?", nearest)
                   : memory_string("unknown key; regulon train --help lists them all");
}

static char *apply_section(struct seen *seen, const struct entry *e) {
    for (size_t i = 0; i < seen->n_sections; i++)
        if (strcmp(seen->section[i].name, e->key) == 0) return twice(seen->section[i].line);
    if (seen->n_sections < sizeof seen->section / sizeof *seen->section) {
        seen->section[seen->n_sections].name = e->key;
        seen->section[seen->n_sections++].line = e->line;
    }
    return NULL;
}

/* "dataset.sources[2].path" */
static char *apply_source(struct config *c, const struct entry *e, const char *folder) {
    const char *open = strchr(e->key, '['), *close = open ? strchr(open, ']') : NULL;
    char number[12] = "";
    int64_t i;
    if (close && e->kind == ENTRY_MAP) return NULL; /* its keys follow */
    if (close == NULL || e->kind != ENTRY_VALUE || close[1] != '.')
        return memory_string("a list of {path, weight} is expected");
    if (close - open < (long)sizeof number) memcpy(number, open + 1, (size_t)(close - open - 1));
    if (!text_to_int(number, &i) || i < 0) return memory_string("not an item of a list");
    return value_set_source(c, (size_t)i, close + 2, e->value, folder);
}

static char *apply_sources(struct config *c, const struct field *f, const struct entry *e,
                           int first, const char *folder) {
    if (first) value_clear_sources(c);
    if (e->kind == ENTRY_EMPTY_LIST || (e->kind == ENTRY_MAP && e->key[strlen(f->key)] == 0))
        return NULL;
    if (e->key[strlen(f->key)] == 0)
        return e->kind == ENTRY_VALUE ? value_set(c, f, e->value, folder)
                                      : memory_string("a list of {path, weight} is expected");
    return apply_source(c, e, folder);
}

/* "train.freeze", a list, and its items "train.freeze[2]". */
static char *apply_words(struct config *c, const struct field *f, const struct entry *e) {
    const char *item = e->key + strlen(f->key), *close = strchr(item, ']');
    if (e->kind == ENTRY_EMPTY_LIST || e->kind == ENTRY_MAP) {
        if (item[0] == 0) value_free(c, f);
        return item[0] ? memory_string("a list of words is expected") : NULL;
    }
    if (e->kind != ENTRY_VALUE || (item[0] && (!close || close[1])))
        return memory_string("a list of words is expected");
    return item[0] ? value_add_word(c, f, e->value) : value_set(c, f, e->value, NULL);
}

static char *apply_entry(struct config *c, const struct entries *list, const struct entry *e,
                         struct seen *seen, unsigned char *given) {
    const struct field *f = field_find(e->key, strcspn(e->key, "["));
    if (f == NULL && field_is_section(e->key)) {
        if (e->kind == ENTRY_MAP || e->kind == ENTRY_EMPTY_MAP) return apply_section(seen, e);
        return e->value || e->kind != ENTRY_VALUE
                   ? memory_string("keys are expected below it, not a value")
                   : apply_section(seen, e);
    }
    if (f == NULL)
        return e->kind == ENTRY_MAP ? NULL : unknown_key(e->key); /* its keys follow and say more */
    size_t i = (size_t)(f - fields);
    int first = seen->field_line[i] < 0;
    if (first && given) given[i] = 1;
    if (first) seen->field_line[i] = e->line;
    if (f->type == FIELD_SOURCES) {
        int whole = strchr(e->key, '[') == NULL;
        return whole && !first ? twice(seen->field_line[i])
                               : apply_sources(c, f, e, first, list->folder);
    }
    if (f->type == FIELD_WORDS && (first || strchr(e->key, '['))) return apply_words(c, f, e);
    if (!first) return twice(seen->field_line[i]);
    if (e->kind != ENTRY_VALUE || e->key[strlen(f->key)])
        return memory_string("one value is expected");
    return value_set(c, f, e->value, list->folder);
}

char *build_apply(struct config *c, const struct entries *e, unsigned char *given) {
    struct seen seen = {.field_line = memory_alloc_array(n_fields, sizeof *seen.field_line)};
    for (size_t i = 0; i < n_fields; i++) seen.field_line[i] = -1;
    char *error = NULL;
    for (size_t i = 0; i < e->n && !error; i++) {
        char *problem = apply_entry(c, e, &e->entry[i], &seen, given);
        if (problem) error = entries_error(e, e->entry[i].key, e->entry[i].line, problem);
    }
    memory_free(seen.field_line);
    return error;
}

char *build_finish(struct config *c, const unsigned char *given, const char *where) {
    for (size_t i = 0; i < n_fields; i++)
        if (fields[i].initial == NULL && !given[i])
            return memory_format("%s: required, but not given (%s)", fields[i].key, where);
    if (c->dataset.micro_batch_size == 0 && c->dataset.token_micro_batch_size == 0)
        c->dataset.micro_batch_size = 1;
    return check_config(c);
}

char *build_parse(const char *text, size_t bytes, const char *name, struct config **out) {
    struct entries e = {.name = name};
    struct config *c = build_defaults();
    unsigned char *given = memory_alloc(n_fields);
    char *error = yaml_to_entries(text, bytes, &e);
    if (!error) error = build_apply(c, &e, given);
    if (!error) error = build_finish(c, given, name);
    entries_free(&e);
    memory_free(given);
    if (error)
        config_free(c);
    else
        *out = c;
    return error;
}
