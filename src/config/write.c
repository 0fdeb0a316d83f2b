/* The table of keys, with the values of a struct or with their defaults, as YAML and as help. */
#include "config.h"
#include "config/config.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/build.h"
#include "config/fields.h"
#include "config/value.h"
#include <string.h>

/* Writes the heading of f's section when it is another than the one before; returns the key without
 * it. */
static const char *open_section(const struct field *f, FILE *out) {
    const char *dot = strchr(f->key, '.');
    size_t n = dot ? (size_t)(dot - f->key) : 0;
    int same = f > fields && strncmp(f[-1].key, f->key, n + 1) == 0;
    if (dot && !same) fprintf(out, "%.*s:\n", (int)n, f->key);
    return dot ? dot + 1 : f->key;
}

void config_write(const struct config *c, FILE *out) {
    for (size_t i = 0; i < n_fields; i++) {
        const struct field *f = &fields[i];
        const char *name = open_section(f, out), *indent = name == f->key ? "" : "  ";
        if (f->type == FIELD_SOURCES && c->dataset.n_sources) {
            fprintf(out, "%s%s:\n", indent, name);
            for (size_t s = 0; s < c->dataset.n_sources; s++) {
                char *text = value_source_text(&c->dataset.sources[s]);
                fprintf(out, "%s  - %s\n", indent, text);
                memory_free(text);
            }
            continue;
        }
        char *text = value_text(c, f, /*quoted=*/1);
        fprintf(out, "%s%s: %s\n", indent, name, text);
        memory_free(text);
    }
}

/* " [steps; 1 or more]": unit and range, as far as there are any. */
static void write_limits(const struct field *f, FILE *out) {
    char range[96];
    field_range(range, sizeof range, f);
    if (!f->unit && !range[0]) return;
    fprintf(out, " [%s%s%s]", f->unit ? f->unit : "", f->unit && range[0] ? "; " : "", range);
}

void config_write_reference(FILE *out) {
    fputs("# Every key that a deck may hold, with its default. Required keys have none and stand "
          "in comments.\n"
          "# Between brackets: unit and range. Printed by the program from its own table; do not "
          "edit.\n",
          out);
    struct config *c = build_defaults();
    for (size_t i = 0; i < n_fields; i++) {
        const struct field *f = &fields[i];
        const char *dot = strchr(f->key, '.');
        if (!dot || i == 0 || strncmp(f[-1].key, f->key, (size_t)(dot - f->key) + 1) != 0)
            fputc('\n', out);
        const char *name = open_section(f, out), *indent = name == f->key ? "" : "  ";
        fprintf(out, "%s# %s", indent, f->sentence);
        write_limits(f, out);
        char *text = value_text(c, f, /*quoted=*/0);
        if (f->initial)
            fprintf(out, "\n%s%s: %s\n", indent, name, text);
        else
            fprintf(out, "\n%s# %s: required\n", indent, name);
        memory_free(text);
    }
    config_free(c);
}

void config_write_help(FILE *out) {
    struct config *c = build_defaults();
    for (size_t i = 0; i < n_fields; i++) {
        const struct field *f = &fields[i];
        char *text = f->initial ? value_text(c, f, /*quoted=*/0) : memory_string("required");
        fprintf(out, "  %s (%s, %s%s)\n      %s", f->key, field_type_name(f),
                f->initial ? "default " : "", text, f->sentence);
        write_limits(f, out);
        fputc('\n', out);
        memory_free(text);
    }
    config_free(c);
}

void config_each(const struct config *c,
                 void (*visit)(const char *key, const char *value, void *context), void *context) {
    for (size_t i = 0; i < n_fields; i++) {
        char *text = value_text(c, &fields[i], /*quoted=*/0);
        visit(fields[i].key, text, context);
        memory_free(text);
    }
}
