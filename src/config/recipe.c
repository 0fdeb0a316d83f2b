#include "config.h"
#include "config/recipe.h"
#include "base/memory.h"
#include <string.h>

#define NO_LOADER "data are read by one thread a rank from a memory-mapped corpus"
#define EIGHT_BITS "fp8_block or mxfp8; scales follow from each block, with no history"
#define NO_FP4 "this version computes in eight bits or more"
#define STATISTICS "into metrics.h5, of all operands"

/* Exact keys before the patterns that cover them. docs/configuration.md shows this table. */
/* clang-format off */
const struct recipe_key recipe_keys[] = {
    {"adamw_kwargs.lr", "optimizer.lr", NULL},
    {"adamw_kwargs.betas", "optimizer.beta1", "and optimizer.beta2"},
    {"adamw_kwargs.eps", "optimizer.eps", NULL},
    {"adamw_kwargs.weight_decay", "optimizer.weight_decay", NULL},
    {"adamw_kwargs.fused", NULL, "the optimiser has one form"},
    {"adamw_kwargs.*", "optimizer", "with the keys lr, beta1, beta2, eps and weight_decay"},
    {"use_weight_decay_grouping", "optimizer.decay_norms", "the other way round: false leaves norms without decay"},
    {"skip_embedding_weight_decay", "optimizer.decay_embeddings", "the other way round"},
    {"max_grad_norm", "optimizer.max_grad_norm", NULL},
    {"lr_scheduler_kwargs.num_warmup_steps", "scheduler.warmup_steps", NULL},
    {"lr_scheduler_kwargs.num_training_steps", "scheduler.decay_steps", "which is num_train_steps when not given"},
    {"lr_scheduler_kwargs.num_decay_steps", "scheduler.decay_steps", "counted from the first step: add the warm-up"},
    {"lr_scheduler_kwargs.min_lr_ratio", "scheduler.min_lr_ratio", NULL},
    {"lr_scheduler_kwargs.*", "scheduler", "with the keys kind, warmup_steps, decay_steps and min_lr_ratio"},

    {"config_name_or_path", "model.config", "a config.json on disk"},
    {"config_kwargs.max_position_embeddings", NULL, "rotary positions have no table; dataset.max_seq_length is the window"},
    {"config_kwargs.attn_input_format", NULL, "documents are always packed"},
    {"config_kwargs.self_attn_mask_type", NULL, "attention is always causal within a document"},
    {"config_kwargs.*", "model", "with the names of config.json"},
    {"use_te", NULL, "there is one implementation; backend and engine choose its parts"},
    {"use_meta_device", NULL, "weights are made where they stay"},
    {"use_torch_compile", NULL, "nothing is compiled at run time"},
    {"use_fp32_master_weights", NULL, "master weights always have 32 bits"},
    {"use_sequence_packing", NULL, "documents are always packed"},
    {"expert_parallel_size", "parallelism.ep_size", NULL},
    {"ep_size", "parallelism.ep_size", NULL},
    {"dp_size", "parallelism.dp_size", NULL},
    {"cp_size", NULL, "a sequence is never split over ranks"},
    {"tp_size", NULL, "a matrix is never split over ranks; experts are, with parallelism.ep_size"},
    {"pp_size", NULL, "layers are not split over ranks; experts are, with parallelism.ep_size"},
    {"token_dispatcher", "engine.exchange", NULL},
    {"token_dispatcher_fallback", NULL, "an engine that cannot be used is refused, never replaced"},
    {"fully_shard_kwargs.*", "parallelism.shard", NULL},

    {"dataset.tokenizer_name_or_path", NULL, "a character is a token; other tokens come with pack --tokens"},
    {"dataset.tokenizer_name", NULL, "a character is a token; other tokens come with pack --tokens"},
    {"dataset.load_dataset_kwargs.path", "dataset.path", NULL},
    {"dataset.load_dataset_kwargs.data_files", "dataset.path", "or dataset.sources for several"},
    {"dataset.load_dataset_kwargs.split", NULL, "a file is one split; dataset.holdout_share holds a part of it out"},
    {"dataset.load_dataset_kwargs.streaming", NULL, NO_LOADER},
    {"dataset.load_dataset_kwargs.*", "dataset.path", NULL},
    {"dataset.text_column", "dataset.text_field", NULL},
    {"dataset.num_workers", NULL, NO_LOADER},
    {"dataset.buffer_size", NULL, "the order of the data is a permutation of all of them, without a buffer"},
    {"dataset.use_stateful_dataloader", NULL, "the place in the data follows from the step"},
    {"dataset.pad_sequences_to_be_divisible_by", NULL, "micro-batches are packed to exactly their size"},
    {"dataset.mlm_probability", NULL, "the next token is predicted, not masked ones"},

    {"wandb_init_args.*", NULL, "a run writes its figures to metrics.h5 in the run folder"},
    {"wandb.*", NULL, "a run writes its figures to metrics.h5 in the run folder"},
    {"fp8_config.*", "precision.recipe", EIGHT_BITS},
    {"fp4_config.*", NULL, NO_FP4},
    {"fp8_layers", "precision.layers_bf16", "the layers that stay out, counted from 0"},
    {"fp4_layers", NULL, NO_FP4},
    {"fp8_stats_config.*", "precision.statistics_every_n_steps", STATISTICS},
    {"quant_stats_config.*", "precision.statistics_every_n_steps", STATISTICS},
    {"bf16_baseline_file", NULL, "regulon compare sets two runs beside each other"},
    {"defaults", NULL, "a deck stands alone; key=value words change it"},
    {"hydra.*", NULL, "decks are plain YAML"},
};
/* clang-format on */
const size_t n_recipe_keys = sizeof recipe_keys / sizeof *recipe_keys;

/* As long as they are equal: "wandb.*" covers "wandb" and "wandb.name"; items of lists count as the
 * list. */
static int covers(const char *pattern, const char *key) {
    size_t n = strlen(pattern), bytes = strcspn(key, "[");
    if (n > 2 && strcmp(pattern + n - 2, ".*") == 0) {
        n -= 2;
        return bytes >= n && strncmp(pattern, key, n) == 0 && (bytes == n || key[n] == '.');
    }
    return strncmp(pattern, key, n) == 0 && (bytes == n || key[n] == '.');
}

char *recipe_answer(const char *key) {
    for (size_t i = 0; i < n_recipe_keys; i++) {
        const struct recipe_key *r = &recipe_keys[i];
        if (!covers(r->key, key)) continue;
        if (r->ours == NULL) return memory_format("regulon has no such key because %s", r->note);
        return memory_format("this is %s here%s%s", r->ours, r->note ? ", " : "",
                             r->note ? r->note : "");
    }
    return NULL;
}
