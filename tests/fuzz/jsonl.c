/* JSON lines from bytes: slices must not matter, and what libjansson reads as an object with a
 * usable text we read too, with the same text. */
#include "config.h"
#include "fuzz.h"
#include "data/jsonl.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void require(int ok) {
    if (!ok) abort();
}

/* Parses one line both ways. */
static void compare(const uint8_t *line, size_t size) {
    json_error_t why;
    json_t *root =
        json_loadb((const char *)line, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    json_t *text = root && json_is_object(root) ? json_object_get(root, "text") : NULL;
    json_t *id = text ? json_object_get(root, "id") : NULL;
    int usable =
        text && json_is_string(text) &&
        !(id && json_is_string(id) && memchr(json_string_value(id), 0, json_string_length(id)));
    for (size_t i = 0; usable && i < json_string_length(text); i++)
        usable = (unsigned char)json_string_value(text)[i] > 3;
    if (usable) {
        struct reader *r = reader_open_memory(line, size, "x", 0, READER_TEXT);
        struct records *out = records_new(1, -1, NULL);
        jsonl_parse(r, "text", out);
        if (reader_error(r) == NULL || strstr(reader_error(r), "nested") == NULL) {
            require(reader_error(r) == NULL && out->n == 1 &&
                    (size_t)out->n_tokens == json_string_length(text));
            require(memcmp(out->tokens, json_string_value(text), (size_t)out->n_tokens) == 0);
        }
        records_free(out);
        reader_close(r);
    }
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    struct records *whole = records_new(1, -1, NULL), *sliced = records_new(1, -1, NULL);
    struct reader *a = reader_open_memory(data + 1, size - 1, "x", 0, READER_TEXT);
    struct reader *b = reader_open_memory(data + 1, size - 1, "x", 1 + data[0] % 16, READER_TEXT);
    jsonl_parse(a, "text", whole);
    jsonl_parse(b, "text", sliced);
    const char *x = reader_error(a), *y = reader_error(b);
    require(!x == !y && (!x || strcmp(x, y) == 0));
    require(whole->n == sliced->n && whole->n_tokens == sliced->n_tokens);
    require(memcmp(whole->tokens, sliced->tokens, (size_t)whole->n_tokens) == 0);
    reader_close(a);
    reader_close(b);
    records_free(whole);
    records_free(sliced);
    /* one line, and no NUL: libjansson 2.14 skips one behind a number, which is no JSON */
    if (size > 1 && data[1] == '{' && !memchr(data + 1, '\n', size - 1) &&
        !memchr(data + 1, '\r', size - 1) && !memchr(data + 1, 0, size - 1))
        compare(data + 1, size - 1);
    return 0;
}
