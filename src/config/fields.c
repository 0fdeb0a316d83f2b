/* The one table of keys. A row's key is spelled as the member of struct config that it fills; AT
 * makes the compiler compare the two and the member's type. */
#include "config.h"
#include "config/fields.h"
#include "base/memory.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>

#define AT(type, key) \
    (offsetof(struct config, key) + 0 * sizeof((type *)0 == &((struct config *)0)->key))
#define INT(key, initial, min, max, zero, unit, sentence) \
    { #key, FIELD_INT, AT(int64_t, key), initial, min, max, 0, zero, unit, NULL, sentence }
#define REAL(key, initial, min, max, range, unit, sentence) \
    { #key, FIELD_REAL, AT(double, key), initial, min, max, range, NULL, unit, NULL, sentence }
#define BOOL(key, initial, sentence) \
    { #key, FIELD_BOOL, AT(int, key), initial, 0, 1, 0, NULL, NULL, "false|true", sentence }
#define ENUM(key, initial, words, sentence) \
    { #key, FIELD_ENUM, AT(int, key), initial, 0, 0, 0, NULL, NULL, words, sentence }
#define TEXT(key, initial, sentence) \
    { #key, FIELD_TEXT, AT(char *, key), initial, 0, 0, 0, NULL, NULL, NULL, sentence }
#define PATH(key, sentence) \
    { #key, FIELD_PATH, AT(char *, key), "null", 0, 0, 0, "null", NULL, NULL, sentence }
#define WORDS(key, sentence) \
    { #key, FIELD_WORDS, AT(char *, key), "null", 0, 0, 0, "null", NULL, NULL, sentence }
#define REQUIRED NULL
#define MANY 1e12    /* steps: as good as no limit */
#define WIDE 1048576 /* widths and tokens */

/* clang-format off */
const struct field fields[] = {
    INT(num_train_steps, REQUIRED, 1, MANY, NULL, "steps", "Optimiser steps of the whole run."),
    INT(grad_acc_steps, "1", 1, WIDE, NULL, "micro-batches", "Micro-batches that each rank adds up before an optimiser step."),
    {"seed", FIELD_UINT, AT(uint64_t, seed), "42", 0, 0, 0, NULL, NULL, NULL,
     "Where all random numbers come from: initial weights, order of the data, strands."},
    BOOL(deterministic, "false", "Take slower operations where the fast ones do not repeat to the bit (attention on a GPU)."),
    ENUM(backend, "auto", "auto|cpu|cuda", "What computes: auto is cuda where every rank has a GPU that can be used, else cpu."),

    INT(parallelism.dp_size, "auto", 1, WIDE, "auto", "ranks", "Groups of ranks that hold copies of the experts: auto is ranks / ep_size."),
    INT(parallelism.ep_size, "1", 1, WIDE, NULL, "ranks", "Ranks over which the experts of a layer are spread."),
    ENUM(parallelism.shard, "optimizer", "none|optimizer|full", "What is split over ranks instead of copied: optimizer splits master weights and moments, full weights and gradients, too, of which two layers are whole at a time."),

    ENUM(memory.recompute, "none", "none|activation|layer", "What the backward pass makes again instead of keeping it: copies alone, what costs little, or whole layers. The result does not change."),
    INT(memory.recompute_layers, "all", 0, 4096, "all", "layers", "How many layers memory.recompute is for, from the first on."),

    ENUM(engine.experts, "auto", "auto|grouped|cublaslt|loop", "How the experts' matrices are multiplied: grouped needs a Hopper GPU in BF16 and widths that are multiples of 64, cublaslt a GPU, loop the CPU."),
    ENUM(engine.attention, "auto", "auto|cudnn|own", "How attention is computed; cudnn needs a GPU."),
    ENUM(engine.exchange, "auto", "auto|peer|nccl|mpi", "How tokens travel between the ranks of an expert-parallel group; peer and nccl need GPUs, mpi is for the CPU."),
    INT(engine.exchange_blocks, "128", 1, 1024, NULL, "blocks", "Thread blocks on a GPU that carry tokens between ranks with engine.exchange peer: few leave multiprocessors to others."),
    ENUM(engine.collectives, "auto", "auto|peer|nccl|mpi", "How weights and gradients travel beside other work, with parallelism.shard full, and with optimizer where engine.reduce has it so; peer and nccl need GPUs, mpi is for the CPU."),
    ENUM(engine.reduce, "auto", "auto|beside|after", "When gradients are summed over the ranks with parallelism.shard optimizer: stage by stage beside the backward pass of a step's last micro-batch, and updated weights gathered beside AdamW, or all of it after them. auto: beside on GPUs, from 1 GiB of gradients on; smaller models are faster with every pass recorded. With shard none it is after, with full beside every pass."),
    INT(engine.communication_sms, "32", 0, 64, NULL, "multiprocessors", "Multiprocessors of a GPU that matrix products leave to communication where it runs beside them: with parallelism.shard full, and in the pass that engine.reduce speaks of; with engine.collectives peer a quarter of them. 0: none."),
    BOOL(engine.fused, "true", "The grouped kernels compute the experts' activation and its gradient within their products. false: in passes over memory of their own, which is slower and for comparison, and without a stash (router.capacity). Other engines always have such passes; a recipe of eight bits is refused with false."),
    BOOL(engine.cuda_graph, "true", "Record the work of a micro-batch on a GPU once and launch it as a whole, where the experts are grouped and tokens do not travel through NCCL: less waiting between small operations. The result does not change."),
    ENUM(precision.recipe, "auto", "auto|fp32|bf16|fp8_block|mxfp8|auto8", "Type of weights and activations, and of what their products take; masters and moments are FP32 always. auto is bf16 on a GPU and fp32 on the CPU. fp8_block and mxfp8 multiply projections and experts in eight bits, auto8 chooses between them by the GPU: docs/configuration.md has them."),
    BOOL(precision.emulate, "false", "A recipe of eight bits may be computed on what has no fast products for it, with its numbers, slowly: operands are rounded as it has them. Else it is refused there. mxfp8 is emulated also where GPUs have its products."),
    BOOL(precision.fp8_activations, "false", "With a recipe of eight bits, what the experts keep from the forward pass for the backward pass (the inputs of their activation) is rounded to eight bits, and kept so where a GPU computes in them: less memory, and a gradient of slightly rounded activations. Attention's part stays as it is."),
    BOOL(precision.fp8_weights, "false", "Training with a recipe of eight bits keeps no copy in bf16 of the weights of the experts that are in it: of the FP32 masters their copies in eight bits are made, once a step. 2 bytes a parameter less; the result does not change. On the CPU there is nothing to save."),
    BOOL(precision.fp8_dispatch, "false", "Tokens go to their experts, and gradients of results to theirs, in eight bits, with any recipe: half of the bytes that travel there. All are rounded, also those that stay on their rank, so the grid makes no difference. Needs GPUs of compute capability 8.9 or more, or the CPU."),
    INT(precision.first_layers_bf16, "0", 0, WIDE, NULL, "layers", "Layers at the beginning that stay out of a recipe of eight bits: they compute in bf16, on the CPU in fp32."),
    INT(precision.last_layers_bf16, "0", 0, WIDE, NULL, "layers", "The same at the end."),
    WORDS(precision.layers_bf16, "Instead of these two: the layers that stay out by their numbers, from 0 on, such as [0, 5, 31]."),
    INT(precision.statistics_every_n_steps, "100", 0, MANY, NULL, "steps", "With a recipe of eight bits, what it does to weights, activations and gradients goes into metrics.h5 every so many steps, the first and the last: what underflows, the error, scales. Such a step takes a little longer. 0: never."),

    PATH(model.config, "A Hugging Face Mixtral config.json, or a folder with one: gives the model keys that the deck does not."),
    INT(model.vocab_size, "256", 2, 16777216, NULL, "tokens", "Number of different tokens; 256 for text and genomes, where a character is a token."),
    INT(model.hidden_size, REQUIRED, 1, WIDE, NULL, "numbers", "Width of the model: the vector that stands for a token."),
    INT(model.intermediate_size, REQUIRED, 1, WIDE, NULL, "numbers", "Width inside one expert."),
    INT(model.num_hidden_layers, REQUIRED, 1, 4096, NULL, "layers", "Layers, each attention and then experts."),
    INT(model.num_attention_heads, REQUIRED, 1, 65536, NULL, "heads", "Attention heads of a layer."),
    INT(model.num_key_value_heads, "null", 0, 65536, "null", "heads", "Heads of keys and values, shared by groups of attention heads: null is one for each."),
    INT(model.head_dim, "null", 0, 65536, "null", "numbers", "Width of a head: null is hidden_size / num_attention_heads."),
    INT(model.num_local_experts, REQUIRED, 1, 65536, NULL, "experts", "Experts of a layer, over all ranks."),
    INT(model.num_experts_per_tok, "2", 1, 65536, NULL, "experts", "Experts that each token is sent to."),
    REAL(model.rms_norm_eps, "1e-5", 0, 1, RANGE_ABOVE_MIN, NULL, "Added to the mean square before the root in a norm."),
    REAL(model.rope_theta, "1e6", 1, 1e15, 0, NULL, "Base of the wavelengths of the rotary position embedding."),
    INT(model.sliding_window, "null", 0, 2147483647, "null", "tokens", "How far back attention looks: null is to the start of the document."),
    BOOL(model.tie_word_embeddings, "false", "One matrix serves as embedding and as output head."),
    REAL(model.initializer_range, "0.02", 0, 10, 0, NULL, "Standard deviation of the initial weights."),
    REAL(model.router_aux_loss_coef, "0.01", 0, 1000, 0, NULL, "Weight of the loss that asks for equally loaded experts."),
    BOOL(model.init_scaled_outputs, "false", "Initial output projections divided by sqrt(2 num_hidden_layers)."),
    REAL(model.init_embedding_std, "0", 0, 10, 0, NULL, "Standard deviation of the initial embedding: 0 is initializer_range."),

    ENUM(router.aux_loss, "layer", "layer|hf", "Definition of the balance loss: a mean over each layer, or Hugging Face's over all layers pooled."),
    ENUM(router.balance_over, "micro_batch", "micro_batch|world", "Tokens over which the balance loss counts: one micro-batch, or those of all ranks."),
    REAL(router.z_loss_coef, "0", 0, 1000, 0, NULL, "Weight of the loss that keeps router logits small: 0 is off."),
    REAL(router.capacity, "1.5", 1, 1e6, 0, NULL, "Tokens that a GPU has room for when parallelism.ep_size is above 1, over all layers, relative to even routing; a step with more is done again, slower. For engine.experts grouped that are fused: else there is room for all."),
    REAL(router.bias_rate, "0", 0, 1, 0, NULL, "Step by which the selection bias of an expert moves towards equal loads: 0 is off."),

    REAL(optimizer.lr, "3e-4", 0, 10, 0, NULL, "Learning rate at its peak."),
    REAL(optimizer.beta1, "0.9", 0, 1, RANGE_BELOW_MAX, NULL, "AdamW's decay of the first moment."),
    REAL(optimizer.beta2, "0.95", 0, 1, RANGE_BELOW_MAX, NULL, "AdamW's decay of the second moment."),
    REAL(optimizer.eps, "1e-8", 0, 1, RANGE_ABOVE_MIN, NULL, "AdamW's epsilon."),
    REAL(optimizer.weight_decay, "0.1", 0, 10, 0, NULL, "AdamW's decoupled weight decay."),
    BOOL(optimizer.decay_embeddings, "true", "Weight decay also for the embedding and the head."),
    BOOL(optimizer.decay_norms, "false", "Weight decay also for the weights of the norms."),
    REAL(optimizer.max_grad_norm, "1", 0, 1e9, 0, NULL, "Gradients are scaled down to this norm: 0 is no clipping."),

    ENUM(scheduler.kind, "cosine", "cosine|linear|constant", "Shape of the learning rate after the warm-up."),
    INT(scheduler.warmup_steps, "0", 0, MANY, NULL, "steps", "Steps in which the rate rises linearly to its peak."),
    INT(scheduler.decay_steps, "null", 0, MANY, "null", "steps", "Step at which the rate reaches its minimum, warm-up included: null is num_train_steps."),
    REAL(scheduler.min_lr_ratio, "0.1", 0, 1, 0, NULL, "The smallest learning rate, as a share of the peak."),

    PATH(dataset.path, "What to train on: FASTA, FASTQ or JSONL, plain or gzip, or a packed corpus."),
    {"dataset.sources", FIELD_SOURCES, AT(struct config_source *, dataset.sources), "null", 0, 0, 0, "null", NULL, NULL,
     "Several corpora instead of path: a list of {path, weight}, weight being the share of micro-batches."},
    ENUM(dataset.alphabet, "dna", "dna|rna|protein|bytes", "Which letters are predicted."),
    TEXT(dataset.text_field, "text", "The field of a JSONL line that holds the sequence."),
    INT(dataset.micro_batch_size, "null", 1, WIDE, "null", "windows", "Size of a micro-batch on each rank, in windows of max_seq_length tokens: 1 if token_micro_batch_size is not given either."),
    INT(dataset.token_micro_batch_size, "null", 1, 1073741824, "null", "tokens", "Size of a micro-batch on each rank, in tokens."),
    INT(dataset.max_seq_length, "1024", 2, 16777216, NULL, "tokens", "Length of a window, the marks of begin and end included."),
    INT(dataset.stride, "0", 0, 16777216, NULL, "tokens", "Tokens by which the windows of a record overlap: context, predicted in the window before."),
    ENUM(dataset.bos_eos, "record", "record|window|none", "Where marks of begin and end stand: at the ends of records, of every window, or nowhere."),
    BOOL(dataset.mask_degenerate_bases, "true", "Only the alphabet's letters are predicted, not N and the like."),
    BOOL(dataset.mask_tags, "false", "Text between two | is context and never predicted."),
    ENUM(dataset.uppercase_labels, "auto", "auto|false|true", "Predict letters without their case: auto is true for dna and rna."),
    REAL(dataset.lowercase_weight, "1", 0, 1000, 0, NULL, "Weight in the loss of soft-masked (lower-case) letters."),
    BOOL(dataset.reverse_complement, "false", "Also train on the opposite strand."),
    ENUM(dataset.holdout_by, "record", "record|block", "What is held out for validation: whole records, or blocks within them."),
    REAL(dataset.holdout_share, "0", 0, 0.5, 0, NULL, "Share of the data held out for validation."),
    INT(dataset.holdout_block, "8192", 1, MANY, NULL, "bases", "Length of a held-out block."),
    INT(dataset.read_ahead, "2", 1, 1024, NULL, "micro-batches", "Micro-batches prepared ahead of their use."),

    BOOL(validation.enabled, "false", "Measure the loss on held-out data during training."),
    INT(validation.eval_interval, "500", 1, MANY, NULL, "steps", "Steps between two validations."),
    INT(validation.num_batches, "all", 0, MANY, "all", "micro-batches", "Micro-batches of a validation, over the whole grid."),
    PATH(validation.data_path, "A file of held-out data, instead of a share of the training data."),

    PATH(checkpoint.ckpt_dir, "The run folder, where everything is written: null is ./runs/DECKNAME."),
    PATH(checkpoint.init_from, "Start a new run from the weights of another: a run folder, a step folder or a Hugging Face folder; step, schedule and moments begin anew."),
    INT(checkpoint.save_every_n_steps, "null", 0, MANY, "null", "steps", "Steps between two checkpoints, the end of training included: null is none."),
    INT(checkpoint.max_checkpoints, "3", 0, MANY, "all", "checkpoints", "How many of the newest checkpoints are kept."),
    INT(checkpoint.keep_every_n_steps, "null", 0, MANY, "null", "steps", "Checkpoints of every so many steps are kept besides."),
    INT(checkpoint.max_failures, "3", 1, MANY, NULL, "saves", "Stop, with exit code 74, after so many saves in a row that failed; until then training goes on."),
    BOOL(checkpoint.async_save, "true", "Write a checkpoint while training goes on."),
    BOOL(checkpoint.resume_from_checkpoint, "true", "Go on from the newest whole checkpoint in the run folder; false starts anew and moves the earlier run aside."),
    BOOL(checkpoint.save_final_model, "true", "Write the model when training ends."),

    INT(logger.frequency, "1", 1, MANY, NULL, "steps", "Steps between two printed and recorded rows."),
    ENUM(logger.progress, "auto", "auto|false|true", "A bar with the time left below the printed rows: auto draws it where the output is a terminal, which it is not under most launchers."),

    INT(profiler.start_step, "null", 0, MANY, "null", "steps", "First step that a profiler records which waits for cudaProfilerStart; needs a GPU."),
    INT(profiler.end_step, "null", 0, MANY, "null", "steps", "Last step that it records."),

    REAL(train.max_hours, "0", 0, 1e5, 0, "h", "Wall-clock limit of one start, after which the run saves and leaves with exit code 75: 0 is none."),
    REAL(train.reserve_minutes, "5", 0, 1e5, 0, "min", "Part of train.max_hours that is left for the last save."),
    INT(train.max_bad_steps, "10", 1, MANY, NULL, "steps", "Stop after so many steps in a row that were skipped for a loss or gradient that is not finite."),
    WORDS(train.freeze, "Parameters that stay as they are: patterns as a shell has them, of the names that regulon info gives, such as 'model.layers.0.*' or '*.experts.*'."),
    REAL(train.spike_mads, "10", 0, 1e6, 0, NULL, "Record a step as a spike whose loss is above the median of the last 64 by so many times their median absolute deviation: 0 is off."),
    BOOL(train.verdict, "false", "End with a verdict: did the loss fall, did every pair of ranks exchange tokens, do the experts differ; exit 70 if not."),

    INT(watchdog.timeout_s, "300", 0, 1e9, NULL, "s", "End the job (70) when a rank gives no sign or stands still for so long, ten times that while loading, saving and in the first step: 0 is no watchdog."),
};
/* clang-format on */
const size_t n_fields = sizeof fields / sizeof *fields;

const struct field *field_find(const char *key, size_t bytes) {
    for (size_t i = 0; i < n_fields; i++)
        if (strncmp(fields[i].key, key, bytes) == 0 && fields[i].key[bytes] == 0) return &fields[i];
    return NULL;
}

int field_is_section(const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < n_fields; i++)
        if (strncmp(fields[i].key, name, n) == 0 && fields[i].key[n] == '.') return 1;
    return 0;
}

static const char *last_part(const char *key) {
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

/* A key in the wrong section first, then a misspelled key, then a misspelled one in the wrong
 * section. */
const char *field_nearest(const char *word) {
    const char **names = memory_alloc_array(n_fields, sizeof *names), *nearest = NULL;
    for (size_t i = 0; i < n_fields && !nearest; i++)
        if (strcmp(last_part(fields[i].key), last_part(word)) == 0) nearest = fields[i].key;
    for (size_t i = 0; i < n_fields; i++) names[i] = fields[i].key;
    if (!nearest) nearest = text_nearest(word, names, n_fields);
    for (size_t i = 0; i < n_fields; i++) names[i] = last_part(fields[i].key);
    const char *part = nearest ? NULL : text_nearest(last_part(word), names, n_fields);
    for (size_t i = 0; part && !nearest; i++)
        if (names[i] == part) nearest = fields[i].key;
    memory_free(names);
    return nearest;
}

char *field_range(char *buf, size_t size, const struct field *f) {
    buf[0] = 0;
    if (f->type == FIELD_ENUM) {
        size_t n = 0;
        for (const char *p = f->words; *p && n + 4 < size; p++) {
            if (*p == '|')
                buf[n++] = ' ', buf[n++] = '|', buf[n++] = ' ';
            else
                buf[n++] = *p;
        }
        buf[n] = 0;
    } else if (f->type == FIELD_INT && f->max >= MANY) {
        snprintf(buf, size, "%.0f or more", f->min);
    } else if (f->type == FIELD_INT || (f->type == FIELD_REAL && f->range == 0)) {
        snprintf(buf, size, f->type == FIELD_INT ? "%.0f to %.0f" : "%g to %g", f->min, f->max);
    } else if (f->type == FIELD_REAL) {
        snprintf(buf, size, "%s%g%s%g", f->range & RANGE_ABOVE_MIN ? "above " : "", f->min,
                 f->range & RANGE_BELOW_MAX ? ", below " : " to ", f->max);
    }
    return buf;
}

const char *field_type_name(const struct field *f) {
    switch (f->type) {
    case FIELD_INT:
    case FIELD_UINT:
        return "whole number";
    case FIELD_REAL:
        return "number";
    case FIELD_BOOL:
        return "true or false";
    case FIELD_ENUM:
        return "word";
    case FIELD_TEXT:
        return "text";
    case FIELD_PATH:
        return "path";
    case FIELD_WORDS:
        return "words";
    case FIELD_SOURCES:
        return "list";
    }
    return NULL;
}
