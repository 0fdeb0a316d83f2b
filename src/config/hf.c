/* Every key of a config.json is one of: a key of ours; one that Regulon can do in a single way, and
 * then must have that value; one that says nothing about the computation; or unknown. */
#include "config.h"
#include "config/hf.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "config/fields.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The one value that Regulon can do. null, or a key that is missing, means the same. */
static const struct {
    const char *key, *word; /* word: a text, or NULL for the number */
    double number;          /* false is 0, true is 1 */
} only[] = {
    {"hidden_act", "silu", 0},
    {"attention_bias", NULL, 0},
    {"mlp_bias", NULL, 0},
    {"attention_dropout", NULL, 0},
    {"hidden_dropout", NULL, 0},
    {"router_jitter_noise", NULL, 0},
    {"partial_rotary_factor", NULL, 1},
    {"is_encoder_decoder", NULL, 0},
    {"add_cross_attention", NULL, 0},
    {"pretraining_tp", NULL, 1},
};

static const char *const harmless[] = {
    "architectures",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "dtype",
    "eos_token_id",
    "id2label",
    "is_decoder",
    "label2id",
    "max_position_embeddings",
    "_name_or_path",
    "name_or_path",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "problem_type",
    "model_type",
    "regulon_step",
    "return_dict",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "use_cache",
};

static char *as_text(const json_t *value) {
    char number[40];
    if (json_is_real(value))
        return memory_string(text_real(number, sizeof number, json_real_value(value)));
    char *s = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    char *shown = entries_quote(s ? s : "");
    free(s);
    return shown;
}

static char *refuse(const char *key, const json_t *value, const char *name, const char *instead) {
    char *seen = as_text(value);
    char *error =
        memory_format("%s: %s is not something regulon does; %s (%s)", key, seen, instead, name);
    memory_free(seen);
    return error;
}

static int equals(const json_t *value, const char *word, double number) {
    if (word) return json_is_string(value) && strcmp(json_string_value(value), word) == 0;
    if (json_is_boolean(value)) return json_is_true(value) == (number != 0);
    return json_is_number(value) && json_number_value(value) == number;
}

/* rope_parameters of transformers 5, rope_scaling before: both may only say that nothing is scaled.
 */
static char *check_rope(json_t *rope, const char *key, const char *name) {
    const char *part;
    json_t *value;
    if (rope == NULL || json_is_null(rope)) return NULL;
    if (!json_is_object(rope)) return refuse(key, rope, name, "an object or null is expected");
    json_object_foreach(rope, part, value) {
        int type = strcmp(part, "rope_type") == 0 || strcmp(part, "type") == 0;
        if (strcmp(part, "rope_theta") == 0 || (type && equals(value, "default", 0))) continue;
        if (strcmp(part, "partial_rotary_factor") == 0 && equals(value, NULL, 1)) continue;
        char *shown = entries_quote(part), *both = memory_format("%s.%s", key, shown);
        char *error = refuse(both, value, name, "positions are rotated without scaling");
        memory_free(shown);
        memory_free(both);
        return error;
    }
    return NULL;
}

/* A model with one feed-forward block a layer, of which `regulon import --experts` makes experts.
 */
static int is_dense(const json_t *root) {
    const json_t *type = json_object_get(root, "model_type");
    return (equals(type, "llama", 0) || equals(type, "mistral", 0)) &&
           !json_object_get(root, "num_local_experts");
}

/* The model's kind, and what a dense one has where it does not say. */
static char *take_type(json_t *root, const char *name, struct entries *e) {
    json_t *type = json_object_get(root, "model_type");
    int dense = is_dense(root);
    if (type && !json_is_null(type) && !dense && !equals(type, "mixtral", 0))
        return refuse("model_type", type, name, "it must be 'mixtral'");
    if (dense && !json_object_get(root, "rms_norm_eps"))
        entries_add(e, ENTRY_VALUE, "model.rms_norm_eps", "1e-6", 0);
    return NULL;
}

static char *add_theta(json_t *root, const char *name, struct entries *e) {
    const char *usual = is_dense(root) ? "1e4" : "1e6";
    json_t *outer = json_object_get(root, "rope_theta"),
           *inner = json_object_get(json_object_get(root, "rope_parameters"), "rope_theta");
    if (json_is_null(outer)) outer = NULL;
    if (json_is_null(inner)) inner = NULL;
    if (outer && inner && !json_equal(outer, inner) &&
        json_number_value(outer) != json_number_value(inner)) {
        char *a = as_text(outer), *b = as_text(inner);
        char *error =
            memory_format("rope_theta is %s but rope_parameters.rope_theta is %s (%s)", a, b, name);
        memory_free(a);
        memory_free(b);
        return error;
    }
    if (!outer && !inner) log_info("config", "%s has no rope_theta; %s is taken", name, usual);
    char *text = outer || inner ? as_text(outer ? outer : inner) : memory_string(usual);
    entries_add(e, ENTRY_VALUE, "model.rope_theta", text, 0);
    memory_free(text);
    return NULL;
}

static int is_harmless(const char *key) {
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strcmp(harmless[i], key) == 0) return 1;
    return 0;
}

static char *take_key(const char *key, const json_t *value, const char *name, struct entries *e) {
    for (size_t i = 0; i < sizeof only / sizeof *only; i++) {
        if (strcmp(only[i].key, key) != 0 || json_is_null(value) ||
            equals(value, only[i].word, only[i].number))
            continue;
        char *wanted = only[i].word ? memory_format("it must be '%s'", only[i].word)
                                    : memory_format("it must be %g", only[i].number);
        char *error = refuse(key, value, name, wanted);
        memory_free(wanted);
        return error;
    }
    for (size_t i = 0; i < sizeof only / sizeof *only; i++)
        if (strcmp(only[i].key, key) == 0) return NULL;
    if (strcmp(key, "quantization_config") == 0 && !json_is_null(value))
        return refuse(key, value, name, "weights are not quantised");
    if (strncmp(key, "rope_", 5) == 0 || is_harmless(key) || json_is_null(value)) return NULL;
    char *ours = memory_format("model.%s", key);
    if (field_find(ours, strlen(ours)) && strcmp(key, "config") != 0) {
        char *text = as_text(value);
        entries_add(e, ENTRY_VALUE, ours, text, 0);
        memory_free(text);
    } else {
        char *shown = entries_quote(key);
        log_warn("config", "%s: unknown key, passed over (%s)", shown, name);
        memory_free(shown);
    }
    memory_free(ours);
    return NULL;
}

char *hf_to_entries(const char *text, size_t bytes, const char *name, struct entries *e) {
    json_error_t where;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where), *value;
    if (root == NULL) {
        char *reason = entries_quote(where.text),
             *error = memory_format("not JSON: %s (%s:%d)", reason, name, where.line);
        memory_free(reason);
        return error;
    }
    char *error = json_is_object(root) ? NULL : memory_format("not a JSON object (%s)", name);
    const char *key;
    if (!error) error = take_type(root, name, e);
    if (!error) error = check_rope(json_object_get(root, "rope_scaling"), "rope_scaling", name);
    if (!error)
        error = check_rope(json_object_get(root, "rope_parameters"), "rope_parameters", name);
    json_object_foreach(root, key, value) if (!error) error = take_key(key, value, name, e);
    if (!error) error = add_theta(root, name, e);
    json_decref(root);
    return error;
}
