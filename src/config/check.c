#include "config.h"
#include "config/check.h"
#include "base/memory.h"
#include "base/text.h"
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#define refuse(...) return memory_format(__VA_ARGS__)

static char *check_model(const struct config *c) {
    int64_t heads = c->model.num_attention_heads, shared = c->model.num_key_value_heads,
            width = c->model.head_dim;
    if (shared && heads % shared)
        refuse("model.num_attention_heads (%" PRId64
               ") is not a multiple of model.num_key_value_heads (%" PRId64 ")",
               heads, shared);
    if (!width && c->model.hidden_size % heads)
        refuse("model.hidden_size (%" PRId64
               ") is not a multiple of model.num_attention_heads (%" PRId64
               "), and model.head_dim is not given",
               c->model.hidden_size, heads);
    if (!width && c->model.hidden_size / heads % 2)
        refuse("model.hidden_size / model.num_attention_heads is %" PRId64
               "; the width of a head must be even to be rotated",
               c->model.hidden_size / heads);
    if (width % 2)
        refuse("model.head_dim is %" PRId64 "; the width of a head must be even to be rotated",
               width);
    if (width * c->model.num_attention_heads > INT_MAX / 4)
        refuse("model.num_attention_heads (%" PRId64 ") heads of %" PRId64 " are too wide",
               c->model.num_attention_heads, width);
    if (c->model.num_experts_per_tok > c->model.num_local_experts)
        refuse("model.num_experts_per_tok (%" PRId64 ") is above model.num_local_experts (%" PRId64
               ")",
               c->model.num_experts_per_tok, c->model.num_local_experts);
    if (c->model.num_local_experts % c->parallelism.ep_size)
        refuse("model.num_local_experts (%" PRId64
               ") is not a multiple of parallelism.ep_size (%" PRId64 ")",
               c->model.num_local_experts, c->parallelism.ep_size);
    if (c->engine.reduce != REDUCE_AUTO && c->parallelism.shard != SHARD_OPTIMIZER)
        refuse("engine.reduce is for parallelism.shard=optimizer");
    if (c->memory.recompute_layers && c->memory.recompute == RECOMPUTE_NONE)
        refuse("memory.recompute_layers (%" PRId64 ") needs memory.recompute activation or layer",
               c->memory.recompute_layers);
    if (c->memory.recompute_layers > c->model.num_hidden_layers)
        refuse("memory.recompute_layers (%" PRId64 ") is above model.num_hidden_layers (%" PRId64
               ")",
               c->memory.recompute_layers, c->model.num_hidden_layers);
    return NULL;
}

static char *check_layers_bf16(const char *list, int64_t layers) {
    char *problem = NULL;
    for (const char *at = list + strspn(list, " "); *at && !problem; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        char *word = memory_format("%.*s", (int)n, at);
        int64_t layer;
        if (!text_to_int(word, &layer) || layer < 0 || layer >= layers)
            problem = memory_format("precision.layers_bf16: '%s' is not a layer: they are 0 to "
                                    "%" PRId64,
                                    word, layers - 1);
        memory_free(word);
        at += n;
    }
    return problem;
}

static char *check_precision(const struct config *c) {
    int64_t first = c->precision.first_layers_bf16, last = c->precision.last_layers_bf16;
    const char *list = c->precision.layers_bf16;
    if (!c->engine.fused && c->precision.recipe >= PRECISION_FP8_BLOCK)
        refuse("engine.fused: false is for bf16 and fp32; precision.recipe is one of eight bits");
    if (list && first + last > 0)
        refuse("precision.layers_bf16 ('%s') and precision.first_layers_bf16 (%" PRId64
               ") or last_layers_bf16 (%" PRId64 "): give the list or the two numbers",
               list, first, last);
    if (list) return check_layers_bf16(list, c->model.num_hidden_layers);
    if (first + last > c->model.num_hidden_layers)
        refuse("precision.first_layers_bf16 (%" PRId64 ") and precision.last_layers_bf16 (%" PRId64
               ") are more than model.num_hidden_layers (%" PRId64 ")",
               first, last, c->model.num_hidden_layers);
    return NULL;
}

static char *check_limits(const struct config *c) {
    if (c->train.max_hours > 0 && c->train.max_hours * 60 <= c->train.reserve_minutes)
        refuse("train.max_hours (%g h) leaves no time beside train.reserve_minutes (%g min)",
               c->train.max_hours, c->train.reserve_minutes);
    return NULL;
}

static char *check_profiler(const struct config *c) {
    int64_t start = c->profiler.start_step, end = c->profiler.end_step;
    if (!start != !end)
        refuse("profiler.start_step and profiler.end_step: give both of them or none");
    if (start > end)
        refuse("profiler.start_step (%" PRId64 ") is above profiler.end_step (%" PRId64 ")", start,
               end);
    return NULL;
}

char *check_engines(const struct config *c, int cuda) {
    enum { CPU = 1, CUDA = 2 };
    const struct {
        int asked, lacks; /* who does not have it */
        const char *key, *value;
    } list[] = {
        {c->precision.recipe == PRECISION_BF16, CPU, "precision.recipe", "bf16"},
        {c->engine.experts == EXPERTS_GROUPED, CPU, "engine.experts", "grouped"},
        {c->engine.experts == EXPERTS_CUBLASLT, CPU, "engine.experts", "cublaslt"},
        {c->engine.experts == EXPERTS_LOOP, CUDA, "engine.experts", "loop"},
        {c->engine.attention == ATTENTION_CUDNN, CPU, "engine.attention", "cudnn"},
        {c->engine.exchange == EXCHANGE_PEER, CPU, "engine.exchange", "peer"},
        {c->engine.exchange == EXCHANGE_NCCL, CPU, "engine.exchange", "nccl"},
        {c->engine.exchange == EXCHANGE_MPI, CUDA, "engine.exchange", "mpi"},
        {c->engine.collectives == EXCHANGE_PEER, CPU, "engine.collectives", "peer"},
        {c->engine.collectives == EXCHANGE_NCCL, CPU, "engine.collectives", "nccl"},
        {c->engine.collectives == EXCHANGE_MPI, CUDA, "engine.collectives", "mpi"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].asked && list[i].lacks & (cuda ? CUDA : CPU))
            refuse("%s is '%s', which backend '%s' does not have", list[i].key, list[i].value,
                   cuda ? "cuda" : "cpu");
    return NULL;
}

/* With backend auto once it is known what that is. */
static char *check_own_engines(const struct config *c) {
    return c->backend == BACKEND_AUTO ? NULL : check_engines(c, c->backend == BACKEND_CUDA);
}

/* The largest token a letter of the alphabet can be, in either case. Bytes may stand for the tokens
 * of any tokeniser: there the corpus is compared with the vocabulary when it is opened. */
static int largest_letter(int alphabet) {
    switch (alphabet) {
    case ALPHABET_DNA:
        return 't';
    case ALPHABET_RNA:
        return 'u';
    case ALPHABET_PROTEIN:
        return 'y';
    default:
        return 0;
    }
}

static char *check_dataset(const struct config *c) {
    int64_t windows = c->dataset.micro_batch_size, tokens = c->dataset.token_micro_batch_size,
            length = c->dataset.max_seq_length;
    int letter = largest_letter(c->dataset.alphabet),
        marks = c->dataset.bos_eos == BOS_NONE ? 0 : 2;
    if (windows && tokens)
        refuse("dataset.micro_batch_size (%" PRId64 ") and dataset.token_micro_batch_size (%" PRId64
               "): give one of them; null takes one back",
               windows, tokens);
    if (windows && windows > INT_MAX / length)
        refuse("dataset.micro_batch_size (%" PRId64 ") times dataset.max_seq_length (%" PRId64
               ") is above %d tokens",
               windows, length, INT_MAX);
    if (c->dataset.path && c->dataset.n_sources)
        refuse("dataset.path and dataset.sources: give one of them; null takes one back");
    if (c->dataset.n_sources > 1024)
        refuse("dataset.sources: %zu of them, at most 1024 can be mixed", c->dataset.n_sources);
    for (size_t i = 0; i < c->dataset.n_sources; i++) {
        if (!c->dataset.sources[i].path)
            refuse("dataset.sources[%zu].path: required, but not given", i);
        if (!(c->dataset.sources[i].weight > 0))
            refuse("dataset.sources[%zu].weight: required, but not given", i);
    }
    if (length - c->dataset.stride - marks < 1)
        refuse("dataset.stride (%" PRId64 ")%s leaves no room in dataset.max_seq_length (%" PRId64
               ")",
               c->dataset.stride, marks ? " with the marks of begin and end" : "", length);
    if (letter >= c->model.vocab_size)
        refuse("model.vocab_size (%" PRId64
               ") is too small for dataset.alphabet: the letter '%c' is token %d",
               c->model.vocab_size, letter, letter);
    if (c->dataset.reverse_complement && c->dataset.alphabet != ALPHABET_DNA &&
        c->dataset.alphabet != ALPHABET_RNA)
        refuse("dataset.reverse_complement needs dataset.alphabet dna or rna");
    return NULL;
}

static char *check_schedule(const struct config *c) {
    int64_t warmup = c->scheduler.warmup_steps, decay = c->scheduler.decay_steps;
    if (warmup > c->num_train_steps)
        refuse("scheduler.warmup_steps (%" PRId64 ") is above num_train_steps (%" PRId64 ")",
               warmup, c->num_train_steps);
    if (decay && warmup > decay)
        refuse("scheduler.warmup_steps (%" PRId64 ") is above scheduler.decay_steps (%" PRId64 ")",
               warmup, decay);
    return NULL;
}

static char *check_validation(const struct config *c) {
    int share = c->dataset.holdout_share > 0;
    if (share && c->validation.data_path)
        refuse("dataset.holdout_share and validation.data_path: give one of them");
    if (c->validation.enabled && !share && !c->validation.data_path)
        refuse("validation.enabled needs dataset.holdout_share above 0 or validation.data_path");
    return NULL;
}

char *check_config(const struct config *c) {
    char *(*const checks[])(const struct config *) = {
        check_model,    check_own_engines, check_profiler, check_dataset,
        check_schedule, check_validation,  check_limits,   check_precision};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        char *problem = checks[i](c);
        if (problem) return problem;
    }
    return NULL;
}

char *check_steps(const struct config *c) {
    int eight = c->precision.recipe >= PRECISION_FP8_BLOCK,
        out = c->precision.first_layers_bf16 + c->precision.last_layers_bf16 > 0 ||
              c->precision.layers_bf16;
    if (c->precision.fp8_activations && !eight)
        refuse("precision.fp8_activations needs a precision.recipe of eight bits");
    /* One array has the rows of all layers then, and elements of one size. */
    if (c->precision.fp8_activations && out && c->parallelism.ep_size != 1)
        refuse("precision.fp8_activations together with layers that stay out of the recipe "
               "(precision.first_layers_bf16, last_layers_bf16, layers_bf16) needs "
               "parallelism.ep_size=1");
    if (c->precision.fp8_weights && !eight)
        refuse("precision.fp8_weights needs a precision.recipe of eight bits");
    return NULL;
}

char *check_training(const struct config *c) {
    if (!c->dataset.path && !c->dataset.n_sources)
        refuse("dataset.path or dataset.sources: one of them is required for training");
    return NULL;
}
