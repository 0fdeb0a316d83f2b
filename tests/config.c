/* Configuration without files: values, messages, round trip; then precedence and config.json with
 * files. What ends the program is in decks.sh. */
#include "config.h"
#include "base/file.h"
#include "base/memory.h"
#include "config/build.h"
#include "config/config.h"
#include "config/fields.h"
#include "config/hf.h"
#include "config/recipe.h"
#include "tap.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The required keys, after the text under test so that its lines count from 1. */
static const char required[] =
    "model.hidden_size: 64\nmodel.intermediate_size: 96\nmodel.num_hidden_layers: 2\n"
    "model.num_attention_heads: 4\nmodel.num_local_experts: 8\n";

/* A deck of this text; NULL and *error when it is refused. */
static struct config *parse(const char *text, char **error) {
    struct config *c = NULL;
    const char *steps = strstr(text, "num_train_steps") ? "" : "num_train_steps: 10\n";
    char *deck = memory_format("%s%s%s", text, steps, required);
    *error = build_parse(deck, strlen(deck), "t.yaml", &c);
    memory_free(deck);
    return c;
}

static void refuses(const char *text, const char *message) {
    char *error;
    struct config *c = parse(text, &error);
    int ok = c == NULL && error && strcmp(error, message) == 0;
    tap_ok(ok, "refused: %s", message);
    if (!ok) tap_note("got: %s", error ? error : "no error");
    memory_free(error);
    config_free(c);
}

static void accepts(int ok, const char *error, const char *what) {
    tap_ok(ok, "%s", what);
    if (error) tap_note("got: %s", error);
}

/* Bit for bit where a member is a number. */
static int equal(const struct config *a, const struct config *b) {
    for (size_t i = 0; i < n_fields; i++) {
        const char *x = (const char *)a + fields[i].offset, *y = (const char *)b + fields[i].offset;
        const char *s, *t;
        switch (fields[i].type) {
        case FIELD_BOOL:
        case FIELD_ENUM:
            if (memcmp(x, y, sizeof(int)) != 0) return 0;
            break;
        case FIELD_TEXT:
        case FIELD_PATH:
        case FIELD_WORDS:
            memcpy(&s, x, sizeof s), memcpy(&t, y, sizeof t);
            if (!s != !t || (s && strcmp(s, t) != 0)) return 0;
            break;
        case FIELD_SOURCES:
            break;
        default:
            if (memcmp(x, y, 8) != 0) return 0;
        }
    }
    if (a->dataset.n_sources != b->dataset.n_sources) return 0;
    for (size_t i = 0; i < a->dataset.n_sources; i++)
        if (strcmp(a->dataset.sources[i].path, b->dataset.sources[i].path) != 0 ||
            a->dataset.sources[i].weight != b->dataset.sources[i].weight)
            return 0;
    return strcmp(a->deck_name, b->deck_name) == 0;
}

static char *written(const struct config *c) {
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    config_write(c, out);
    fclose(out);
    return text;
}

static void test_defaults(void) {
    char *error;
    struct config *c = parse("", &error);
    accepts(c && c->seed == 42 && c->grad_acc_steps == 1 && c->parallelism.dp_size == 0 &&
                c->optimizer.lr == 3e-4 && c->optimizer.beta2 == 0.95 &&
                c->model.vocab_size == 256 && c->dataset.micro_batch_size == 1 &&
                c->dataset.token_micro_batch_size == 0 && c->dataset.path == NULL &&
                strcmp(c->dataset.text_field, "text") == 0 &&
                c->dataset.uppercase_labels == TRI_AUTO && c->validation.num_batches == 0 &&
                c->scheduler.decay_steps == 0,
            error, "defaults");
    config_free(c);
    c = parse(
        "seed: 18446744073709551615\nnum_train_steps: 2_000\noptimizer: {lr: 1E-3, beta1: .5}\n"
        "dataset: {token_micro_batch_size: '512', uppercase_labels: False, alphabet: protein, "
        "reverse_complement: false, path: 'a b#c'}\n"
        "model: {head_dim: null, sliding_window: ~, tie_word_embeddings: TRUE}\nparallelism: "
        "{dp_size: auto, ep_size: 4}\n"
        "checkpoint:\nlogger: {}\n",
        &error);
    accepts(c && c->seed == UINT64_MAX && c->num_train_steps == 2000 && c->optimizer.lr == 1e-3 &&
                c->optimizer.beta1 == 0.5 && c->dataset.token_micro_batch_size == 512 &&
                c->dataset.micro_batch_size == 0 && c->dataset.uppercase_labels == TRI_FALSE &&
                c->dataset.alphabet == ALPHABET_PROTEIN && strcmp(c->dataset.path, "a b#c") == 0 &&
                c->model.tie_word_embeddings == 1 && c->parallelism.ep_size == 4 &&
                c->model.sliding_window == 0,
            error, "values of every type");
    config_free(c);
}

static void test_values(void) {
    refuses("\n\n\nnum_train_steps: ten\n",
            "num_train_steps: 'ten' is not a whole number (t.yaml:4)");
    refuses("num_train_steps: 1e3\n", "num_train_steps: '1e3' is not a whole number (t.yaml:1)");
    refuses("num_train_steps: 0\n", "num_train_steps: '0' is below 1 (t.yaml:1)");
    refuses("num_train_steps:\n", "num_train_steps: no value given (t.yaml:1)");
    refuses("num_train_steps: 99999999999999999999\n",
            "num_train_steps: '99999999999999999999' is not a whole number (t.yaml:1)");
    refuses("seed: -1\n",
            "seed: '-1' is not a whole number from 0 to 18446744073709551615 (t.yaml:1)");
    refuses("optimizer:\n  lr: .nan\n", "optimizer.lr: '.nan' is not a finite number (t.yaml:2)");
    refuses("optimizer: {beta1: 1}\n", "optimizer.beta1: '1' is not below 1 (t.yaml:1)");
    refuses("optimizer: {eps: 0}\n", "optimizer.eps: '0' is not above 0 (t.yaml:1)");
    refuses("scheduler: {min_lr_ratio: 1.5}\n",
            "scheduler.min_lr_ratio: '1.5' is above 1 (t.yaml:1)");
    refuses("dataset: {holdout_share: 0.6}\n",
            "dataset.holdout_share: '0.6' is above 0.5 (t.yaml:1)");
    refuses("router: {capacity: 0.9}\n", "router.capacity: '0.9' is below 1 (t.yaml:1)");
    refuses("deterministic: yes\n", "deterministic: 'yes' is not true or false (t.yaml:1)");
    refuses("backend: gpu\n", "backend: 'gpu' is not one of auto | cpu | cuda (t.yaml:1)");
    refuses("parallelism: {dp_size: null}\n",
            "parallelism.dp_size: no value given; 'auto' is its default (t.yaml:1)");
    refuses("dataset: {path: ''}\n", "dataset.path: an empty text (t.yaml:1)");
    refuses("optimizer: {lr: [1, 2]}\n", "optimizer.lr: one value is expected (t.yaml:1)");
    refuses("optimizer: {lr: {a: 1}}\n", "optimizer.lr: one value is expected (t.yaml:1)");
    refuses("optimizer: 3\n", "optimizer: keys are expected below it, not a value (t.yaml:1)");
    refuses("dataset: {sources: a.fa}\n",
            "dataset.sources: 'a.fa' is not a list of {path, weight} (t.yaml:1)");
    refuses("dataset: {sources: [a.fa]}\n",
            "dataset.sources[0]: a list of {path, weight} is expected (t.yaml:1)");
    refuses("dataset: {sources: [{}]}\n",
            "dataset.sources[0]: a list of {path, weight} is expected (t.yaml:1)");
    refuses("dataset: {sources: [{path: a}]}\n",
            "dataset.sources[0].weight: required, but not given");
    refuses("dataset: {sources: [{path: a, weight: 0}]}\n",
            "dataset.sources[0].weight: '0' is not above 0 and at most 1000000000 (t.yaml:1)");
    refuses("dataset: {sources: [{path: a, path: b}]}\n",
            "dataset.sources[0].path: given twice (t.yaml:1)");
    refuses(
        "dataset: {sources: [{file: a}]}\n",
        "dataset.sources[0].file: unknown key; an item of the list has path and weight (t.yaml:1)");
}

static void test_keys(void) {
    refuses("num_train_step: 3\n",
            "num_train_step: unknown key; did you mean num_train_steps? (t.yaml:1)");
    refuses("zebra: {crossing: 3}\n",
            "zebra.crossing: unknown key; regulon train --help lists them all (t.yaml:1)");
    refuses("lr: 3\n", "lr: unknown key; did you mean optimizer.lr? (t.yaml:1)");
    refuses("train: {ep_sise: 3}\n",
            "train.ep_sise: unknown key; did you mean parallelism.ep_size? (t.yaml:1)");
    refuses("seed: 1\nseed: 2\n", "seed: given twice, first in line 1 (t.yaml:2)");
    refuses("optimizer:\n  lr: 1\noptimizer.lr: 2\n",
            "optimizer.lr: given twice, first in line 2 (t.yaml:3)");
    refuses("optimizer:\n  lr: 1\nlogger: {}\noptimizer:\n  eps: 1e-8\n",
            "optimizer: given twice, first in line 1 (t.yaml:4)");
    refuses("\"a\\nb\": 1\n", "a?b: unknown key; regulon train --help lists them all (t.yaml:1)");
    char *error;
    struct config *c = NULL;
    error = build_parse("num_train_steps: 3\n", 19, "t.yaml", &c);
    accepts(!c && strcmp(error, "model.hidden_size: required, but not given (t.yaml)") == 0, NULL,
            "a required key is missed");
    memory_free(error);
}

static void test_yaml(void) {
    refuses("seed: &a 3\n", "seed: anchors are not used in decks (t.yaml:1)");
    refuses("seed: *a\n", "seed: aliases are not used in decks (t.yaml:1)");
    refuses("seed: !!int 3\n", "seed: tags are not used in decks (t.yaml:1)");
    refuses("? [a]\n: 3\n", "a key must be a word (t.yaml:1)");
    refuses("a: {b: {c: {d: {e: {f: {g: 1}}}}}}\n", "a.b.c.d.e.f: nested too deeply (t.yaml:1)");
    refuses("---\nseed: 1\n---\n", "a second document starts here (t.yaml:3)");
    refuses("- seed\n---\n", "a list, where keys with values are expected (t.yaml:1)");
    refuses("seed: \"a\\0b\"\n", "seed: a value with a NUL in it (t.yaml:1)");
    refuses("dataset: {path: a\n", "not YAML: did not find expected ',' or '}' (t.yaml:2)");
    refuses("seed: \xff\n", "not YAML: invalid leading UTF-8 octet (t.yaml:1)");
    refuses("seed: 1\n\tgrad_acc_steps: 2\n",
            "not YAML: found a tab character that violates indentation (t.yaml:2)");
}

static void test_checks(void) {
    refuses("dataset: {micro_batch_size: 4, token_micro_batch_size: 1024}\n",
            "dataset.micro_batch_size (4) and dataset.token_micro_batch_size (1024): give one of "
            "them; null takes one back");
    refuses("dataset: {micro_batch_size: 1048576, max_seq_length: 8192}\n",
            "dataset.micro_batch_size (1048576) times dataset.max_seq_length (8192) is above "
            "2147483647 tokens");
    refuses("dataset: {path: a, sources: [{path: b, weight: 1}]}\n",
            "dataset.path and dataset.sources: give one of them; null takes one back");
    refuses("dataset: {stride: 1024}\n", "dataset.stride (1024) with the marks of begin and end "
                                         "leaves no room in dataset.max_seq_length (1024)");
    refuses("dataset: {stride: 1022}\n", "dataset.stride (1022) with the marks of begin and end "
                                         "leaves no room in dataset.max_seq_length (1024)");
    refuses("dataset: {stride: 1024, bos_eos: none}\n",
            "dataset.stride (1024) leaves no room in dataset.max_seq_length (1024)");
    refuses("model: {num_key_value_heads: 3}\n",
            "model.num_attention_heads (4) is not a multiple of model.num_key_value_heads (3)");
    refuses("model: {head_dim: 15}\n",
            "model.head_dim is 15; the width of a head must be even to be rotated");
    refuses("model: {num_experts_per_tok: 9}\n",
            "model.num_experts_per_tok (9) is above model.num_local_experts (8)");
    refuses("memory: {recompute: layer, recompute_layers: 9}\n",
            "memory.recompute_layers (9) is above model.num_hidden_layers (2)");
    refuses("parallelism: {ep_size: 3}\n",
            "model.num_local_experts (8) is not a multiple of parallelism.ep_size (3)");
    refuses("backend: cpu\nengine: {experts: grouped}\n",
            "engine.experts is 'grouped', which backend 'cpu' does not have");
    refuses("backend: cpu\nengine: {attention: cudnn}\n",
            "engine.attention is 'cudnn', which backend 'cpu' does not have");
    refuses("backend: cpu\nengine: {exchange: nccl}\n",
            "engine.exchange is 'nccl', which backend 'cpu' does not have");
    refuses("backend: cpu\nengine: {collectives: peer}\n",
            "engine.collectives is 'peer', which backend 'cpu' does not have");
    refuses("backend: cuda\nengine: {collectives: mpi}\n",
            "engine.collectives is 'mpi', which backend 'cuda' does not have");
    refuses("backend: cpu\nprecision: {recipe: bf16}\n",
            "precision.recipe is 'bf16', which backend 'cpu' does not have");
    refuses("precision: {layers_bf16: [1, x]}\n",
            "precision.layers_bf16: 'x' is not a layer: they are 0 to 1");
    refuses("precision: {layers_bf16: [-1]}\n",
            "precision.layers_bf16: '-1' is not a layer: they are 0 to 1");
    refuses("precision: {layers_bf16: [0], last_layers_bf16: 1}\n",
            "precision.layers_bf16 ('0') and precision.first_layers_bf16 (0) or last_layers_bf16 "
            "(1): give the list or the two numbers");
    refuses("backend: cuda\nengine: {experts: loop}\n",
            "engine.experts is 'loop', which backend 'cuda' does not have");
    refuses(
        "model: {vocab_size: 116}\n",
        "model.vocab_size (116) is too small for dataset.alphabet: the letter 't' is token 116");
    refuses("dataset: {alphabet: protein, reverse_complement: true}\n",
            "dataset.reverse_complement needs dataset.alphabet dna or rna");
    refuses("scheduler: {warmup_steps: 11}\n",
            "scheduler.warmup_steps (11) is above num_train_steps (10)");
    refuses("scheduler: {warmup_steps: 5, decay_steps: 4}\n",
            "scheduler.warmup_steps (5) is above scheduler.decay_steps (4)");
    refuses("validation: {enabled: true}\n",
            "validation.enabled needs dataset.holdout_share above 0 or validation.data_path");
    refuses("validation: {data_path: a}\ndataset: {holdout_share: 0.1}\n",
            "dataset.holdout_share and validation.data_path: give one of them");
    char *error;
    struct config *c = parse("dataset: {stride: 1021}\nmodel: {vocab_size: 117, "
                             "num_experts_per_tok: 8, num_key_value_heads: 1}\n",
                             &error);
    accepts(c != NULL, error, "the last values that fit");
    config_free(c);
    c = parse("precision: {layers_bf16: [1, 0]}\n", &error);
    accepts(c && strcmp(c->precision.layers_bf16, "1 0") == 0, error, "a list of layers");
    config_free(c);
    c = parse("precision: {layers_bf16: []}\n", &error);
    accepts(c && !c->precision.layers_bf16, error, "an empty one is none");
    config_free(c);
    c = parse("dataset: {alphabet: bytes}\nmodel: {vocab_size: 12}\n", &error);
    accepts(c != NULL, error, "ready tokens may have a small vocabulary");
    config_free(c);
    struct config *odd = build_defaults();
    unsigned char *given = memory_alloc(n_fields);
    memset(given, 1, n_fields);
    odd->num_train_steps = odd->model.num_local_experts = 2, odd->model.hidden_size = 10,
    odd->model.num_attention_heads = 4;
    error = build_finish(odd, given, "t");
    accepts(error &&
                strstr(error,
                       "model.hidden_size (10) is not a multiple of model.num_attention_heads (4)"),
            NULL, "width and heads");
    memory_free(error);
    odd->model.num_attention_heads = 2;
    error = build_finish(odd, given, "t");
    accepts(error && strstr(error, "is 5; the width of a head must be even"), NULL, "an odd head");
    memory_free(error);
    memory_free(given);
    config_free(odd);
}

static void test_recipe(void) {
    refuses("adamw_kwargs:\n  lr: 3\n", "adamw_kwargs.lr: this is optimizer.lr here (t.yaml:2)");
    refuses("adamw_kwargs:\n  betas: [0.9, 0.95]\n",
            "adamw_kwargs.betas[0]: this is optimizer.beta1 here, and optimizer.beta2 (t.yaml:2)");
    refuses("lr_scheduler_kwargs:\n  num_warmup_steps: 3\n",
            "lr_scheduler_kwargs.num_warmup_steps: this is scheduler.warmup_steps here (t.yaml:2)");
    refuses("use_sequence_packing: true\n", "use_sequence_packing: regulon has no such key because "
                                            "documents are always packed (t.yaml:1)");
    refuses("dataset: {load_dataset_kwargs: {path: x}}\n",
            "dataset.load_dataset_kwargs.path: this is dataset.path here (t.yaml:1)");
    refuses("config_kwargs: {}\n",
            "config_kwargs: this is model here, with the names of config.json (t.yaml:1)");
    int known = 1;
    char *page =
        memory_format("%s/docs/configuration.md", getenv("srcdir") ? getenv("srcdir") : ".");
    char *text = file_read(page, 1 << 20, NULL);
    tap_ok(text != NULL, "%s", page);
    for (size_t i = 0; i < n_recipe_keys; i++) {
        const struct recipe_key *r = &recipe_keys[i];
        int ours =
            r->ours == NULL || field_find(r->ours, strlen(r->ours)) || field_is_section(r->ours);
        char *row = memory_format("\n| `%s` | %s%s%s |", r->key, r->ours ? "`" : "none",
                                  r->ours ? r->ours : "", r->ours ? "`" : "");
        char *found = text ? strstr(text, row) : NULL;
        if (!ours || (!r->ours && !r->note) || field_find(r->key, strlen(r->key)) || !found) {
            tap_note("%s", row + 1);
            known = 0;
        }
        memory_free(row);
    }
    tap_ok(known,
           "every recipe key names a key of ours or a reason, and stands in docs/configuration.md");
    memory_free(text);
    memory_free(page);
}

static void test_round_trip(void) {
    char *error;
    struct config *c =
        parse("seed: 18446744073709551615\noptimizer: {lr: 0.1, eps: "
              "1.2345678901234567e-11}\nscheduler: {min_lr_ratio: 0.33333333333333331}\n"
              "precision: {layers_bf16: [1, 0]}\ntrain: {freeze: ['*.0.*', \"*\\\"*\"]}\n"
              "backend: cuda\nparallelism: {dp_size: 2, ep_size: 4, shard: none}\nmodel: {config: "
              "'x y.json', sliding_window: 9, head_dim: 18}\n"
              "dataset: {text_field: \"null\", uppercase_labels: true, sources: [{path: \"a "
              "\\\"q\\\" \\\\ \\n\\u2028\\u00e9\\u4e2d\\x85\\U0001F9EC\\ufeff: #\", weight: 2.5}, "
              "{path: '~', weight: 1e-3}]}\n",
              &error);
    accepts(c != NULL, error, "a deck with everything odd");
    if (!c) return;
    c->deck_name = memory_string("round");
    char *text = written(c);
    struct config *d = config_parse(text, "runs/round.yaml");
    tap_ok(equal(c, d), "config_write, config_parse: the same struct");
    char *again = written(d);
    tap_ok(strcmp(text, again) == 0, "and the same text");
    free(text);
    free(again);
    config_free(c);
    config_free(d);
}

static void write_file(const char *folder, const char *name, const char *text) {
    char *path = file_join(folder, name);
    tap_ok(file_write_atomic(path, text, strlen(text)), "%s written", name);
    memory_free(path);
}

static const char tiny_json[] =
    "{\"architectures\": [\"MixtralForCausalLM\"], \"attention_dropout\": 0.0, \"head_dim\": null, "
    "\"hidden_act\": \"silu\","
    "\"hidden_size\": 96, \"initializer_range\": 0.05, \"intermediate_size\": 40, "
    "\"max_position_embeddings\": 512,"
    "\"model_type\": \"mixtral\", \"num_attention_heads\": 6, \"num_experts_per_tok\": 4, "
    "\"num_hidden_layers\": 3,"
    "\"num_key_value_heads\": 6, \"num_local_experts\": 16, \"rms_norm_eps\": 1e-05, "
    "\"rope_parameters\":"
    "{\"rope_theta\": 10000.0, \"rope_type\": \"default\"}, \"router_aux_loss_coef\": 0.02, "
    "\"router_jitter_noise\": 0.0,"
    "\"sliding_window\": null, \"tie_word_embeddings\": true, \"use_cache\": false, "
    "\"vocab_size\": 304, \"new_key\": [1]}";

static void test_precedence(void) {
    char folder[] = "config-test-XXXXXX";
    char word[][48] = {"optimizer.lr=0.5",
                       "model.hidden_size=48",
                       "dataset.path=here.fa",
                       "dataset.micro_batch_size=null",
                       "dataset.token_micro_batch_size=77",
                       "dataset.sources=[{path: s, weight: 3}]"};
    char *words[] = {word[0], word[1], word[2], word[3], word[4], word[5]};
    tap_ok(mkdtemp(folder) != NULL, "folder");
    write_file(folder, "config.json", tiny_json);
    write_file(
        folder, "d.yaml",
        "num_train_steps: 5\nmodel: {config: config.json, intermediate_size: 64, hidden_size: 24}\n"
        "optimizer: {lr: 0.25, eps: 1e-9}\ndataset: {path: ./sub/x.fa, micro_batch_size: 3}\n");
    char *deck = file_join(folder, "d.yaml"), *cwd = getcwd(NULL, 0);
    struct config *c = config_load(deck, words, 5);
    tap_ok(c->optimizer.lr == 0.5 && c->optimizer.eps == 1e-9 && c->optimizer.beta1 == 0.9,
           "command line, deck, default");
    tap_ok(c->model.hidden_size == 48 && c->model.intermediate_size == 64 &&
               c->model.num_hidden_layers == 3 && c->model.vocab_size == 304 &&
               c->model.rope_theta == 10000 && c->model.tie_word_embeddings &&
               c->model.router_aux_loss_coef == 0.02,
           "command line, deck, model.config, default");
    tap_ok(c->dataset.micro_batch_size == 0 && c->dataset.token_micro_batch_size == 77,
           "null takes a deck's value back");
    char *here = file_join(cwd, "here.fa"), *run = file_join(cwd, "runs/d");
    tap_ok(strcmp(c->dataset.path, here) == 0,
           "a path on the command line is relative to the working folder");
    tap_ok(strcmp(c->checkpoint.ckpt_dir, run) == 0 && strcmp(c->deck_name, "d") == 0,
           "run folder");
    config_free(c);
    strcpy(words[2], "dataset.path=");
    c = config_load(deck, words, 6);
    char *s = file_join(cwd, "s");
    tap_ok(c->dataset.n_sources == 1 && c->dataset.sources[0].weight == 3 &&
               strcmp(c->dataset.sources[0].path, s) == 0 && !c->dataset.path,
           "sources on the command line");
    config_free(c);
    c = config_load(deck, NULL, 0);
    char *inside = memory_format("%s/%s/sub/x.fa", cwd, folder);
    tap_ok(strcmp(c->dataset.path, inside) == 0, "a path in a deck is relative to the deck");
    char *text = written(c);
    struct config *d = config_parse(text, "d");
    tap_ok(equal(c, d), "a deck with a config.json: written and read without it");
    config_free(c);
    config_free(d);
    c = build_defaults();
    config_read_hf(c, folder); /* its config.json */
    tap_ok(c->model.hidden_size == 96 && c->model.num_experts_per_tok == 4 &&
               c->model.num_local_experts == 16 && c->model.rms_norm_eps == 1e-5 &&
               c->model.initializer_range == 0.05 && c->model.num_key_value_heads == 6 &&
               c->model.head_dim == 0 && c->num_train_steps == 0,
           "config_read_hf");
    config_free(c);
    char *json = file_join(folder, "config.json");
    unlink(json);
    unlink(deck);
    rmdir(folder);
    free(cwd);
    free(text);
    char *owned[] = {deck, here, run, s, inside, json};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) memory_free(owned[i]);
}

/* What a config.json with this text says: an error, or "" */
static void hf(const char *text, const char *message) {
    struct entries e = {.name = "c.json"};
    char *error = hf_to_entries(text, strlen(text), "c.json", &e);
    if (!error) {
        struct config *c = build_defaults();
        error = build_apply(c, &e, NULL);
        config_free(c);
    }
    int ok = strcmp(error ? error : "", message) == 0;
    tap_ok(ok, "config.json: %s", message[0] ? message : text);
    if (!ok) tap_note("got: %s", error ? error : "no error");
    memory_free(error);
    entries_free(&e);
}

static void test_hf(void) {
    hf("{\"rope_theta\": 1e4, \"rope_parameters\": {\"rope_theta\": 10000}}", "");
    hf("{\"rope_theta\": 1e6, \"rope_parameters\": {\"rope_theta\": 10000.0}}",
       "rope_theta is 1000000 but rope_parameters.rope_theta is 10000 (c.json)");
    hf("{\"rope_theta\": null, \"rope_scaling\": null, \"rope_parameters\": null, \"hidden_act\": "
       "null}",
       "");
    hf("{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
       "rope_scaling.type: \"linear\" is not something regulon does; positions are rotated without "
       "scaling (c.json)");
    hf("{\"rope_parameters\": {\"rope_type\": \"yarn\"}}",
       "rope_parameters.rope_type: \"yarn\" is not something regulon does; positions are rotated "
       "without scaling (c.json)");
    hf("{\"hidden_act\": \"gelu\"}",
       "hidden_act: \"gelu\" is not something regulon does; it must be 'silu' (c.json)");
    hf("{\"model_type\": \"llama\", \"num_local_experts\": 4}",
       "model_type: \"llama\" is not something regulon does; it must be 'mixtral' (c.json)");
    hf("{\"model_type\": \"qwen2\"}",
       "model_type: \"qwen2\" is not something regulon does; it must be 'mixtral' (c.json)");
    hf("{\"model_type\": \"llama\"}", ""); /* dense: its deck says how many experts */
    hf("{\"attention_bias\": true}",
       "attention_bias: true is not something regulon does; it must be 0 (c.json)");
    hf("{\"attention_bias\": false}", "");
    hf("{\"attention_dropout\": 0.1}",
       "attention_dropout: 0.1 is not something regulon does; it must be 0 (c.json)");
    hf("{\"router_jitter_noise\": 0.01}",
       "router_jitter_noise: 0.01 is not something regulon does; it must be 0 (c.json)");
    hf("{\"quantization_config\": {\"bits\": 4}}",
       "quantization_config: {\"bits\":4} is not something regulon does; weights are not quantised "
       "(c.json)");
    hf("{\"hidden_size\": \"96\"}", "model.hidden_size: '\"96\"' is not a whole number (c.json)");
    hf("{\"hidden_size\": -1}", "model.hidden_size: '-1' is below 1 (c.json)");
    hf("{\"hidden_size\": 1, \"hidden_size\": 2}",
       "not JSON: duplicate object key near '\"hidden_size\"' (c.json:1)");
    hf("[1]", "not a JSON object (c.json)");
    hf("{", "not JSON: string or '}' expected near end of file (c.json:1)");
}

static void count_key(const char *key, const char *value, void *context) {
    size_t *n = context;
    *n += value != NULL && field_find(key, strlen(key)) == &fields[*n];
}

static void test_each(void) {
    struct config *c = build_defaults();
    size_t n = 0;
    config_each(c, count_key, &n);
    tap_ok(n == n_fields, "config_each visits every key in order");
    config_free(c);
}

int main(int argc, char **argv) {
    tap_open(&argc, &argv);
    test_defaults();
    test_values();
    test_keys();
    test_yaml();
    test_checks();
    test_recipe();
    test_round_trip();
    test_precedence();
    test_hf();
    test_each();
    tap_ok(memory_live() == 0, "nothing is left allocated (%lld)", (long long)memory_live());
    return tap_close();
}
