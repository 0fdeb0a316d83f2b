/* The JSON of a header, read in one pass: memory is that of the tensors found, whatever the header
 * holds. A general parser's tree of 100 MB of JSON would take gigabytes. */
#include "config.h"
#include "checkpoint/safetensors.h"
#include "base/memory.h"
#include "base/text.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 100000000 };

static const struct {
    const char *name;
    int bytes;
} dtypes[] = {{"F64", 8},  {"F32", 4},     {"F16", 2},     {"BF16", 2}, {"I64", 8}, {"I32", 4},
              {"I16", 2},  {"I8", 1},      {"U64", 8},     {"U32", 4},  {"U16", 2}, {"U8", 1},
              {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"C64", 8}};

int safetensors_dtype_bytes(const char *dtype) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtype, dtypes[i].name) == 0) return dtypes[i].bytes;
    return 0;
}

struct scan {
    const char *start, *p, *end;
    char *text; /* [room] the last string, decoded, with a NUL */
    size_t n, room;
    char *wrong; /* the first thing that is wrong; NULL: nothing is */
};

/* 0, and why. A reason that is there already stays, and `problem` is freed. */
static int refuse(struct scan *s, char *problem) {
    if (s->wrong)
        memory_free(problem);
    else
        s->wrong = problem;
    return 0;
}

static int not_json(struct scan *s, const char *what) {
    return refuse(s, memory_format("the header is not JSON: %s (column %lld)", what,
                                   (long long)(s->p - s->start) + 1));
}

static int next(struct scan *s) { /* the next character that is no blank, or 0 */
    while (s->p < s->end && strchr(" \t\n\r", *s->p) && *s->p) s->p++;
    return s->p < s->end ? (unsigned char)*s->p : 0;
}

static int take(struct scan *s, char c) {
    static const char quoted[] = "' is missing";
    char what[] = "'?' is missing";
    memcpy(what + 2, quoted, sizeof quoted);
    what[1] = c;
    if (next(s) != c) return not_json(s, what);
    s->p++;
    return 1;
}

/* ---- strings ---- */

static void keep(struct scan *s, char c) {
    if (s->n + 1 >= s->room) s->text = memory_resize(s->text, s->room = 2 * s->room + 64);
    s->text[s->n++] = c;
}

static void keep_code(struct scan *s, uint32_t code) {
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    keep(s, (char)(lead[more] | code >> 6 * more));
    while (more-- > 0) keep(s, (char)(0x80 | (code >> 6 * more & 63)));
}

static int hex4(struct scan *s, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++, s->p++) {
        static const char digits[] = "0123456789abcdef";
        int c = s->p < s->end ? (unsigned char)*s->p : 0;
        const char *found = c ? strchr(digits, c >= 'A' && c <= 'F' ? c | 32 : c) : NULL;
        if (!found) return not_json(s, "four hexadecimal digits are missing");
        *code = *code << 4 | (uint32_t)(found - digits);
    }
    return 1;
}

/* What follows a backslash. */
static int escape(struct scan *s) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    uint32_t code, low;
    int c = s->p < s->end ? (unsigned char)*s->p++ : 0;
    const char *found = c ? strchr(from, c) : NULL;
    if (found) return keep(s, to[found - from]), 1;
    if (c != 'u') return not_json(s, "no such escape");
    if (!hex4(s, &code)) return 0;
    if (code >= 0xd800 && code < 0xdc00) {
        if (s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u')
            return not_json(s, "half a character");
        s->p += 2;
        if (!hex4(s, &low)) return 0;
        if (low < 0xdc00 || low > 0xdfff) return not_json(s, "half a character");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code == 0 || (code >= 0xdc00 && code < 0xe000))
        return not_json(s, code ? "half a character" : "NUL in a string");
    keep_code(s, code);
    return 1;
}

/* A string into s->text. */
static int string(struct scan *s) {
    if (!take(s, '"')) return 0;
    s->n = 0;
    for (;;) {
        int c = s->p < s->end ? (unsigned char)*s->p : 0;
        if (c < 32) return not_json(s, "a string without an end");
        s->p++;
        if (c == '"') break;
        if (c != '\\')
            keep(s, (char)c);
        else if (!escape(s))
            return 0;
    }
    keep(s, 0);
    uint32_t code;
    for (const char *p = s->text; *p;) {
        int n = text_utf8(p, &code);
        if (n == 0) return not_json(s, "a string that is not UTF-8");
        p += n;
    }
    return 1;
}

/* ---- numbers ---- */

/* A whole number; 0 where something else is, without a word. */
static int whole(struct scan *s, int64_t *value) {
    int minus = next(s) == '-';
    const char *p = s->p + minus, *digits = p;
    for (*value = 0; p < s->end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(*value, (int64_t)10, value) ||
            __builtin_add_overflow(*value, (int64_t)(*p - '0'), value))
            return 0;
    if (p == digits || (*digits == '0' && p > digits + 1)) return 0;
    if (p < s->end && strchr(".eE", *p) && *p) return 0;
    if (minus) *value = -*value;
    s->p = p;
    return 1;
}

/* Whole numbers in brackets: *n of them, at most `room`. 0, without a word where it is no such
 * list; *n is then how many there were. */
static int list_whole(struct scan *s, int64_t *values, int room, int *n) {
    *n = 0;
    if (next(s) != '[') return 0;
    s->p++;
    if (next(s) == ']') return s->p++, 1;
    for (;; s->p++) {
        if (*n == room) return *n = room + 1, 0;
        if (!whole(s, &values[*n])) return 0;
        ++*n;
        if (next(s) == ']') return s->p++, 1;
        if (next(s) != ',') return 0;
    }
}

/* ---- tensors ---- */

/* What an entry says, before it is judged. */
struct entry {
    const char *dtype;
    int n_dims, n_offsets;
    int64_t dims[SAFETENSORS_DIMS], offsets[2];
};

static int no_dtype(struct scan *s, const char *name) {
    return refuse(s, memory_format("tensor '%s' has the unknown dtype '%.20s'", name, s->text));
}

/* The value of one key of a tensor. */
static int read_value(struct scan *s, const char *name, int key, struct entry *e) {
    if (key == 0) {
        if (next(s) != '"' || !string(s))
            return refuse(s, memory_format("tensor '%s': dtype is not a string", name));
        for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
            if (strcmp(s->text, dtypes[i].name) == 0) e->dtype = dtypes[i].name;
        return e->dtype ? 1 : no_dtype(s, name);
    }
    if (key == 2) {
        if (list_whole(s, e->offsets, 2, &e->n_offsets) && e->n_offsets == 2) return 1;
        return refuse(s, memory_format("tensor '%s': data_offsets are not [begin, end]", name));
    }
    if (list_whole(s, e->dims, SAFETENSORS_DIMS, &e->n_dims)) return 1;
    if (e->n_dims > SAFETENSORS_DIMS)
        return refuse(
            s, memory_format("tensor '%s' has more than %d dimensions", name, SAFETENSORS_DIMS));
    return refuse(
        s, memory_format("tensor '%s': dimension %d is not a whole number", name, e->n_dims));
}

/* {"dtype": ..., "shape": ..., "data_offsets": ...}, in any order. */
static int read_entry(struct scan *s, const char *name, struct entry *e) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    int seen = 0;
    if (!take(s, '{')) return 0;
    for (int more = next(s) != '}'; more; more = next(s) == ',' && s->p++) {
        int key = 0;
        if (!string(s)) return 0;
        while (key < 3 && strcmp(s->text, keys[key]) != 0) key++;
        if (key == 3 || seen & 1 << key) {
            seen = 0;
            break;
        }
        seen |= 1 << key;
        if (!take(s, ':') || !read_value(s, name, key, e)) return 0;
    }
    if (seen == 7) return take(s, '}');
    return refuse(
        s, memory_format("tensor '%s' does not have just dtype, shape and data_offsets", name));
}

/* The entry as a tensor of data_bytes of data; takes over `name`. */
static int judge(struct scan *s, char *name, const struct entry *e, uint64_t data_bytes,
                 struct safetensor *t) {
    int64_t size;
    *t = (struct safetensor){.name = name, .dtype = e->dtype, .n_dims = e->n_dims, .n = 1};
    for (int d = 0; d < e->n_dims; d++) {
        t->dims[d] = e->dims[d];
        if (t->dims[d] < 0)
            return refuse(
                s, memory_format("tensor '%s': dimension %d is not a whole number", name, d));
        if (__builtin_mul_overflow(t->n, t->dims[d], &t->n))
            return refuse(s, memory_format("tensor '%s' is too large", name));
    }
    if (e->offsets[0] < 0 || e->offsets[1] < e->offsets[0])
        return refuse(s, memory_format("tensor '%s': data_offsets are not [begin, end]", name));
    t->first = (uint64_t)e->offsets[0];
    t->bytes = (uint64_t)e->offsets[1] - t->first;
    if (__builtin_mul_overflow(t->n, (int64_t)safetensors_dtype_bytes(t->dtype), &size) ||
        (uint64_t)size != t->bytes)
        return refuse(s, memory_format("tensor '%s': %llu bytes of data do not fit its shape and "
                                       "dtype",
                                       name, (unsigned long long)t->bytes));
    if (t->first + t->bytes > data_bytes)
        return refuse(s, memory_format("tensor '%s' lies beyond the end of the file", name));
    return 1;
}

/* ---- keys that may be there once ---- */

struct names {
    char **list; /* [n] */
    int n, room;
};

static void add_name(struct names *names, char *name) {
    if (names->n == names->room) {
        names->room = 2 * names->room + 16;
        names->list = memory_resize(names->list, (size_t)names->room * sizeof *names->list);
    }
    names->list[names->n++] = name;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* 0 where one is there twice; the list is sorted. */
static int all_once(struct scan *s, const struct names *names, const char *what) {
    if (names->n) qsort(names->list, (size_t)names->n, sizeof *names->list, by_text);
    for (int i = 1; i < names->n; i++)
        if (strcmp(names->list[i - 1], names->list[i]) == 0)
            return refuse(s, memory_format("%s '%s' is there twice", what, names->list[i]));
    return 1;
}

static int read_metadata(struct scan *s) {
    struct names keys = {NULL, 0, 0};
    int fine = next(s) == '{';
    if (!fine) refuse(s, memory_string("__metadata__ is not an object"));
    s->p += fine;
    for (int more = fine && next(s) != '}'; fine && more; more = next(s) == ',' && s->p++) {
        fine = string(s);
        if (!fine) break;
        add_name(&keys, memory_string(s->text));
        fine = take(s, ':');
        if (fine && next(s) != '"')
            fine = refuse(
                s, memory_format("__metadata__: '%s' is not a string", keys.list[keys.n - 1]));
        fine = fine && string(s);
    }
    fine = fine && take(s, '}') && all_once(s, &keys, "__metadata__: key");
    for (int i = 0; i < keys.n; i++) memory_free(keys.list[i]);
    memory_free(keys.list);
    return fine;
}

/* ---- all ---- */

static int read_tensors(struct scan *s, uint64_t data_bytes, struct safetensors *out) {
    int room = 0, metadata = 0;
    s->p++; /* '{' */
    for (int more = next(s) != '}'; more; more = next(s) == ',' && s->p++) {
        if (!string(s)) return 0;
        if (strcmp(s->text, "__metadata__") == 0) {
            if (metadata++) return refuse(s, memory_string("__metadata__ is there twice"));
            if (!take(s, ':') || !read_metadata(s)) return 0;
            continue;
        }
        if (out->n == room) {
            room = 2 * room + 64;
            out->list = memory_resize(out->list, (size_t)room * sizeof *out->list);
        }
        struct entry e = {.dtype = NULL};
        char *name = memory_string(s->text);
        out->list[out->n++] = (struct safetensor){.name = name};
        if (!take(s, ':') || !read_entry(s, name, &e) ||
            !judge(s, name, &e, data_bytes, &out->list[out->n - 1]))
            return 0;
    }
    if (!take(s, '}')) return 0;
    next(s);
    return s->p == s->end ? 1 : not_json(s, "text behind it");
}

static int by_place(const void *a, const void *b) {
    const struct safetensor *x = a, *y = b;
    return x->first != y->first   ? (x->first < y->first ? -1 : 1)
           : x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1)
                                  : 0;
}

/* The tensors tile the data, and no name is there twice. */
static int check_all(struct scan *s, uint64_t data_bytes, struct safetensors *out) {
    struct names names = {NULL, 0, 0};
    uint64_t end = 0;
    for (int i = 0; i < out->n; i++) add_name(&names, out->list[i].name);
    int once = all_once(s, &names, "tensor");
    memory_free(names.list);
    if (!once) return 0;
    if (out->n) qsort(out->list, (size_t)out->n, sizeof *out->list, by_place);
    for (int i = 0; i < out->n; i++) {
        if (out->list[i].first != end)
            return refuse(
                s, memory_format("tensor '%s' begins at %llu, the one before it ends at %llu",
                                 out->list[i].name, (unsigned long long)out->list[i].first,
                                 (unsigned long long)end));
        end += out->list[i].bytes;
    }
    if (end == data_bytes) return 1;
    return refuse(s, memory_format("%llu bytes of data, the tensors take %llu",
                                   (unsigned long long)data_bytes, (unsigned long long)end));
}

void safetensors_clear(struct safetensors *f) {
    for (int i = 0; i < f->n; i++) memory_free(f->list[i].name);
    memory_free(f->list);
    f->list = NULL, f->n = 0;
}

char *safetensors_parse(const char *header, size_t header_bytes, uint64_t data_bytes,
                        struct safetensors *out) {
    struct scan s = {.start = header, .p = header, .end = header + header_bytes};
    memset(out, 0, sizeof *out);
    if (header_bytes > MAX_HEADER)
        return memory_format("a header of %zu bytes is over the format's 100 MB", header_bytes);
    if (header_bytes == 0 || header[0] != '{')
        return memory_string("the header does not begin with '{'");
    int fine = read_tensors(&s, data_bytes, out) && check_all(&s, data_bytes, out);
    if (!fine) safetensors_clear(out);
    memory_free(s.text);
    return s.wrong;
}
