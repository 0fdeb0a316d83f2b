/* One pass over libyaml's events with a small stack of open mappings and lists; the path of keys is
 * kept in one buffer that grows and shrinks with the stack. Whether a key exists or is given twice
 * is not known here. */
#include "config.h"
#include "config/yaml.h"
#include "base/memory.h"
#include <yaml.h>
#include <stdio.h>
#include <string.h>

enum { MOST_LEVELS = 6, MOST_KEY_BYTES = 200 };

struct level {
    int is_list;
    int n;              /* items or keys so far */
    size_t path_length; /* of the path to the mapping or list itself */
    size_t i_entry;     /* its ENTRY_MAP */
};

struct walk {
    struct entries *e;
    struct level level[MOST_LEVELS];
    int depth;
    int has_key;  /* in a mapping: its key was read and the value comes next */
    int key_line; /* of the last key */
    int documents;
    char path[MOST_KEY_BYTES + 1];
};

static char *wrong(const struct walk *w, size_t line, const char *what) {
    if (w->path[0] == 0) return memory_format("%s (%s:%zu)", what, w->e->name, line);
    return entries_error(w->e, w->path, (int)line, memory_string(what));
}

static char *extend_path(struct walk *w, size_t from, const char *part, size_t bytes, size_t line) {
    w->path[from] = 0;
    if (bytes == 0 || memchr(part, 0, bytes))
        return wrong(w, line, bytes ? "a key with a NUL in it" : "an empty key");
    if (from + 1 + bytes > MOST_KEY_BYTES) return wrong(w, line, "a key that is too long");
    if (from > 0 && part[0] != '[') w->path[from++] = '.';
    memcpy(w->path + from, part, bytes);
    w->path[from + bytes] = 0;
    return NULL;
}

/* Before a value, mapping or list: what it is a value of. */
static char *begin_node(struct walk *w, const yaml_char_t *anchor, const yaml_char_t *tag,
                        size_t line) {
    if (anchor) return wrong(w, line, "anchors are not used in decks");
    if (tag) return wrong(w, line, "tags are not used in decks");
    if (w->depth == 0) return NULL;
    struct level *up = &w->level[w->depth - 1];
    if (up->is_list) {
        char part[16];
        int bytes = snprintf(part, sizeof part, "[%d]", up->n++);
        return extend_path(w, up->path_length, part, (size_t)bytes, line);
    }
    if (!w->has_key) return wrong(w, line, "a key must be a word");
    w->has_key = 0;
    return NULL;
}

static char *open_level(struct walk *w, int is_list, const yaml_char_t *anchor,
                        const yaml_char_t *tag, size_t line) {
    char *error = begin_node(w, anchor, tag, line);
    if (error) return error;
    if (w->depth == 0 && is_list)
        return wrong(w, line, "a list, where keys with values are expected");
    if (w->depth == MOST_LEVELS) return wrong(w, line, "nested too deeply");
    w->level[w->depth++] = (struct level){is_list, 0, strlen(w->path), w->e->n};
    if (w->depth > 1) {
        int of_key = !w->level[w->depth - 2].is_list; /* a section starts at its key */
        entries_add(w->e, ENTRY_MAP, w->path, NULL, of_key ? w->key_line : (int)line);
    }
    return NULL;
}

static void close_level(struct walk *w) {
    struct level *l = &w->level[--w->depth];
    if (w->depth > 0 && l->n == 0)
        w->e->entry[l->i_entry].kind = l->is_list ? ENTRY_EMPTY_LIST : ENTRY_EMPTY_MAP;
    w->path[l->path_length] = 0;
}

static int is_null(const char *s) {
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(s, words[i]) == 0) return 1;
    return 0;
}

static char *read_scalar(struct walk *w, const yaml_event_t *event, size_t line) {
    const char *s = (const char *)event->data.scalar.value;
    size_t bytes = event->data.scalar.length;
    struct level *up = w->depth ? &w->level[w->depth - 1] : NULL;
    if (up && !up->is_list && !w->has_key) {
        if (event->data.scalar.anchor || event->data.scalar.tag)
            return wrong(w, line, "anchors and tags are not used in decks");
        w->has_key = 1;
        w->key_line = (int)line;
        up->n++;
        return extend_path(w, up->path_length, s, bytes, line);
    }
    char *error = begin_node(w, event->data.scalar.anchor, event->data.scalar.tag, line);
    if (error) return error;
    int plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (memchr(s, 0, bytes)) return wrong(w, line, "a value with a NUL in it");
    if (up)
        entries_add(w->e, ENTRY_VALUE, w->path, plain && is_null(s) ? NULL : s, (int)line);
    else if (!plain || !is_null(s))
        return wrong(w, line, "one value, where keys with values are expected");
    return NULL;
}

static char *take_event(struct walk *w, const yaml_event_t *event) {
    size_t line = event->start_mark.line + 1;
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return ++w->documents > 1 ? wrong(w, line, "a second document starts here") : NULL;
    case YAML_ALIAS_EVENT:
        return wrong(w, line, "aliases are not used in decks");
    case YAML_SCALAR_EVENT:
        return read_scalar(w, event, line);
    case YAML_SEQUENCE_START_EVENT:
        return open_level(w, 1, event->data.sequence_start.anchor, event->data.sequence_start.tag,
                          line);
    case YAML_MAPPING_START_EVENT:
        return open_level(w, 0, event->data.mapping_start.anchor, event->data.mapping_start.tag,
                          line);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        close_level(w);
        return NULL;
    default:
        return NULL;
    }
}

/* libyaml gives a place for what it scans and parses, an offset for bytes it cannot decode. */
static char *not_yaml(const yaml_parser_t *parser, const char *text, size_t bytes,
                      const struct entries *e) {
    size_t line = parser->problem_mark.line + 1;
    if (parser->error == YAML_READER_ERROR) {
        line = 1;
        for (size_t i = 0; i < parser->problem_offset && i < bytes; i++) line += text[i] == '\n';
    }
    return memory_format("not YAML: %s (%s:%zu)",
                         parser->problem ? parser->problem : "no reason given", e->name, line);
}

char *yaml_to_entries(const char *text, size_t bytes, struct entries *e) {
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) return memory_format("%s: out of memory", e->name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    struct walk w = {.e = e};
    char *error = NULL;
    for (int end = 0; !end && !error;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            error = not_yaml(&parser, text, bytes, e);
            break;
        }
        end = event.type == YAML_STREAM_END_EVENT;
        error = take_event(&w, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return error;
}
