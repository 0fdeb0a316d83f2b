#include "config.h"
#include "checkpoint/hf_files.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "data/tokens.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tokens that are no characters, as the tokeniser spells them. */
static const struct {
    const char *key, *word;
    int id;
} marks[] = {{"eos", "<eos>", TOKEN_EOS},
             {"pad", "<pad>", TOKEN_PAD},
             {"bos", "<bos>", TOKEN_BOS},
             {"unk", "<unk>", TOKEN_UNK}};
enum { N_MARKS = sizeof marks / sizeof *marks, N_BYTES = 256 };

char *hf_begin_folder(const char *temporary, const char *what, int *made) {
    *made = !file_exists(temporary);
    if (!*made)
        return memory_format("%s is there: of %s that goes on, or was killed; remove it", temporary,
                             what);
    if (file_make_folders(temporary)) return NULL;
    return memory_format("%s: %s", temporary, strerror(errno));
}

/* Of a tokeniser's tokens we do not know what they mean. */
static int has_marks(const struct config *c) {
    return c->dataset.alphabet != ALPHABET_BYTES;
}

static void set_mark_ids(json_t *root, const struct config *c) {
    char key[32];
    for (int i = 0; i < N_MARKS && has_marks(c); i++) {
        if (marks[i].id == TOKEN_UNK) continue; /* no key of a config */
        snprintf(key, sizeof key, "%s_token_id", marks[i].key);
        json_object_set_new(root, key, json_integer(marks[i].id));
    }
}

/* RoPE's base under its old key and its new one, and the type of the weights, too. */
static json_t *config_json(const struct config *c, const struct shape *s, const char *dtype,
                           int64_t step) {
    json_t *root = json_pack(
        "{s:[s], s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, "
        "s:{s:f, "
        "s:s}, s:f, s:b}",
        "architectures", "MixtralForCausalLM", "model_type", "mixtral", "hidden_act", "silu",
        "dtype", dtype, "torch_dtype", dtype, "vocab_size", s->V, "hidden_size", s->D,
        "intermediate_size", s->F, "num_hidden_layers", s->L, "num_attention_heads", s->H,
        "num_key_value_heads", s->G, "head_dim", s->K, "num_local_experts", s->E,
        "num_experts_per_tok", s->A, "rms_norm_eps", c->model.rms_norm_eps, "rope_theta", s->theta,
        "rope_parameters", "rope_theta", s->theta, "rope_type", "default", "router_aux_loss_coef",
        c->model.router_aux_loss_coef, "tie_word_embeddings", s->tied);
    set_mark_ids(root, c);
    json_object_set_new(root, "sliding_window", s->window ? json_integer(s->window) : json_null());
    json_object_set_new(root, "initializer_range", json_real(c->model.initializer_range));
    json_object_set_new(root, "max_position_embeddings", json_integer(c->dataset.max_seq_length));
    json_object_set_new(root, "use_cache", json_true());
    if (step >= 0) json_object_set_new(root, HF_STEP_KEY, json_integer(step));
    return root;
}

static json_t *generation_json(const struct config *c) {
    json_t *root = json_pack("{s:b}", "_from_model_config", 1);
    set_mark_ids(root, c);
    return root;
}

/* ---- a tokeniser of characters, for the `tokenizers` library ---- */

/* UTF-8 of the character that stands for a byte in its byte-level vocabularies, as those of GPT-2:
 * itself where it can be seen, else the next one from 256 on. */
static const char *byte_character(int byte, char text[3]) {
    int code = 256;
    for (int b = 0; b <= byte; b++) {
        int seen = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte && seen) code = byte;
        if (b < byte && !seen) code++;
    }
    memset(text, 0, 3);
    if (code < 128)
        text[0] = (char)code;
    else
        text[0] = (char)(0xc0 | code >> 6), text[1] = (char)(0x80 | (code & 63));
    return text;
}

/* Token of a byte: its value. The first four are no characters. */
static json_t *vocabulary(void) {
    json_t *vocab = json_object();
    char text[3];
    for (int i = 0; i < N_MARKS; i++)
        json_object_set_new(vocab, marks[i].word, json_integer(marks[i].id));
    for (int b = N_MARKS; b < N_BYTES; b++)
        json_object_set_new(vocab, byte_character(b, text), json_integer(b));
    return vocab;
}

static json_t *added_tokens(void) {
    json_t *list = json_array();
    for (int i = 0; i < N_MARKS; i++)
        json_array_append_new(list,
                              json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", marks[i].id,
                                        "content", marks[i].word, "single_word", 0, "lstrip", 0,
                                        "rstrip", 0, "normalized", 0, "special", 1));
    return list;
}

/* "<bos> A", or "<bos> A <bos> B" for a pair, as training has seen records begin. */
static json_t *begin_with_bos(void) {
    return json_pack(
        "{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}, {s:{s:s, "
        "s:i}}, {s:{s:s, s:i}}], s:{s:{s:s, s:[i], s:[s]}}}",
        "type", "TemplateProcessing", "single", "SpecialToken", "id", "<bos>", "type_id", 0,
        "Sequence", "id", "A", "type_id", 0, "pair", "SpecialToken", "id", "<bos>", "type_id", 0,
        "Sequence", "id", "A", "type_id", 0, "SpecialToken", "id", "<bos>", "type_id", 1,
        "Sequence", "id", "B", "type_id", 1, "special_tokens", "<bos>", "id", "<bos>", "ids",
        TOKEN_BOS, "tokens", "<bos>");
}

static json_t *tokenizer_json(const struct config *c) {
    json_t *bytes = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                              "trim_offsets", 1, "use_regex", 0),
           *processor = c->dataset.bos_eos == BOS_NONE ? json_null() : begin_with_bos();
    json_t *model = json_pack("{s:s, s:n, s:s, s:n, s:n, s:b, s:b, s:b, s:o, s:[]}", "type", "BPE",
                              "dropout", "unk_token", "<unk>", "continuing_subword_prefix",
                              "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                              "ignore_merges", 0, "vocab", vocabulary(), "merges");
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:O, s:o, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", added_tokens(), "normalizer",
                     "pre_tokenizer", bytes, "post_processor", processor, "decoder", bytes, "model",
                     model);
}

static json_t *tokenizer_config_json(const struct config *c) {
    char key[32];
    json_t *root = json_pack("{s:s, s:b, s:I, s:[s, s]}", "tokenizer_class",
                             "PreTrainedTokenizerFast", "clean_up_tokenization_spaces", 0,
                             "model_max_length", (json_int_t)c->dataset.max_seq_length,
                             "model_input_names", "input_ids", "attention_mask");
    for (int i = 0; i < N_MARKS; i++) {
        snprintf(key, sizeof key, "%s_token", marks[i].key);
        json_object_set_new(root, key, json_string(marks[i].word));
    }
    return root;
}

/* ---- */

/* `root` is freed. */
static char *write_json(const char *folder, const char *name, json_t *root, size_t flags) {
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17) | flags),
         *problem = NULL;
    if (!text) die("%s: cannot be made", name);
    char *path = file_join(folder, name);
    if (!file_write_atomic(path, text, strlen(text)))
        problem = memory_format("%s: %s", path, strerror(errno));
    json_decref(root);
    free(text);
    memory_free(path);
    return problem;
}

char *hf_files_write(const char *folder, const struct config *c, const struct shape *s,
                     const char *dtype, int64_t step) {
    int characters = has_marks(c) && s->V >= N_BYTES;
    char *problem =
        write_json(folder, "config.json", config_json(c, s, dtype, step), JSON_SORT_KEYS);
    if (!problem)
        problem = write_json(folder, "generation_config.json", generation_json(c), JSON_SORT_KEYS);
    if (!problem && characters)
        problem = write_json(folder, "tokenizer.json", tokenizer_json(c), 0);
    if (!problem && characters)
        problem = write_json(folder, "tokenizer_config.json", tokenizer_config_json(c), 0);
    return problem;
}

static int is_given(const char *key, char *const *words, int n) {
    for (int i = 0; i < n; i++)
        if (strncmp(words[i], key, strlen(key)) == 0 && words[i][strlen(key)] == '=') return 1;
    return 0;
}

static int is_integer(json_t *root, const char *key, int64_t value) {
    json_t *number = json_object_get(root, key);
    return json_is_integer(number) && json_integer_value(number) == value;
}

int hf_files_words(const char *path, char *const *words, int n, char *to[2]) {
    json_t *root = json_load_file(path, 0, NULL), /* what is wrong with it is said elsewhere */
        *length = json_object_get(root, "max_position_embeddings");
    int characters = is_integer(root, "eos_token_id", TOKEN_EOS) &&
                     is_integer(root, "pad_token_id", TOKEN_PAD) &&
                     is_integer(root, "bos_token_id", TOKEN_BOS) &&
                     json_integer_value(json_object_get(root, "vocab_size")) >= N_BYTES,
        found = 0;
    if (json_is_integer(length) && !is_given("dataset.max_seq_length", words, n))
        to[found++] = memory_format("dataset.max_seq_length=%lld", json_integer_value(length));
    if (!is_given("dataset.alphabet", words, n))
        to[found++] = memory_format("dataset.alphabet=%s", characters ? "dna" : "bytes");
    json_decref(root);
    return found;
}
