/* What a run is told: a deck (YAML), then key=value words, over defaults. One table (fields.c)
 * defines every key; from it come parsing, checking, help, used.yaml and the /config attributes of
 * every HDF5 file. */
#ifndef REGULON_CONFIG_CONFIG_H
#define REGULON_CONFIG_CONFIG_H
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum backend_kind { BACKEND_AUTO, BACKEND_CPU, BACKEND_CUDA };
enum shard_kind { SHARD_NONE, SHARD_OPTIMIZER, SHARD_FULL };
enum aux_kind { AUX_LAYER, AUX_HF };
enum recompute_kind { RECOMPUTE_NONE, RECOMPUTE_ACTIVATION, RECOMPUTE_LAYER };
enum balance_kind { BALANCE_MICRO_BATCH, BALANCE_WORLD };
enum schedule_kind { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT };
enum alphabet_kind { ALPHABET_DNA, ALPHABET_RNA, ALPHABET_PROTEIN, ALPHABET_BYTES };
enum bos_kind { BOS_RECORD, BOS_WINDOW, BOS_NONE };
enum holdout_kind { HOLDOUT_RECORD, HOLDOUT_BLOCK };
enum experts_engine { EXPERTS_AUTO, EXPERTS_GROUPED, EXPERTS_CUBLASLT, EXPERTS_LOOP };
enum attention_engine { ATTENTION_AUTO, ATTENTION_CUDNN, ATTENTION_OWN };
enum precision_kind {
    PRECISION_AUTO,
    PRECISION_FP32,
    PRECISION_BF16,
    PRECISION_FP8_BLOCK,
    PRECISION_MXFP8,
    PRECISION_AUTO8
};
enum reduce_kind { REDUCE_AUTO, REDUCE_BESIDE, REDUCE_AFTER };
enum exchange_engine { EXCHANGE_AUTO, EXCHANGE_PEER, EXCHANGE_NCCL, EXCHANGE_MPI };
enum tristate { TRI_AUTO, TRI_FALSE, TRI_TRUE };

/* One corpus of a mixture. */
struct config_source {
    char *path;
    double weight; /* share of micro-batches, relative to the others' */
};

/* Field names are the keys. Strings are owned by the struct; NULL: not given. */
struct config {
    int64_t num_train_steps; /* optimiser steps of the whole run */
    int64_t grad_acc_steps;  /* micro-batches a rank and step */
    uint64_t seed;
    int deterministic;
    int backend; /* enum backend_kind */

    struct {
        int64_t dp_size; /* 0: auto, ranks / ep_size */
        int64_t ep_size;
        int shard; /* enum shard_kind */
    } parallelism;

    struct {
        int recompute;            /* enum recompute_kind */
        int64_t recompute_layers; /* of how many layers, from the first on; 0: all */
    } memory;

    struct {
        int experts, attention, exchange, collectives, reduce;
        int64_t exchange_blocks, communication_sms;
        int fused, cuda_graph;
    } engine;

    struct {
        int recipe; /* enum precision_kind */
        int emulate, fp8_activations, fp8_weights, fp8_dispatch;
        int64_t first_layers_bf16, last_layers_bf16;
        /* instead of these: numbers of layers, a blank between them; NULL: none */
        char *layers_bf16;
        int64_t statistics_every_n_steps; /* 0: never */
    } precision;

    struct {
        char *config; /* a Hugging Face config.json to read the keys below from */
        int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers;
        int64_t num_attention_heads,
            num_key_value_heads; /* key-value heads: 0: as attention heads */
        int64_t head_dim;        /* 0: hidden_size / num_attention_heads */
        int64_t num_local_experts, num_experts_per_tok;
        double rms_norm_eps, rope_theta;
        int64_t sliding_window; /* tokens, 0: none */
        int tie_word_embeddings;
        double initializer_range;
        double router_aux_loss_coef;
        int init_scaled_outputs;   /* output projections divided by sqrt(2 L) */
        double init_embedding_std; /* 0: initializer_range */
    } model;

    struct {
        int aux_loss;     /* enum aux_kind */
        int balance_over; /* enum balance_kind */
        double z_loss_coef;
        double capacity;  /* rows that a rank's layers have room for, relative to even routing */
        double bias_rate; /* selection bias moved by rate * sign(mean - count) a step; 0: off */
    } router;

    struct {
        double lr, beta1, beta2, eps, weight_decay;
        int decay_embeddings; /* apply weight_decay to the embedding and the head */
        int decay_norms;      /* and to the norms' weights */
        double max_grad_norm; /* 0: no clipping */
    } optimizer;

    struct {
        int kind; /* enum schedule_kind */
        int64_t warmup_steps;
        int64_t decay_steps; /* step at which the rate reaches its minimum; 0: num_train_steps */
        double min_lr_ratio;
    } scheduler;

    struct {
        char *path;                    /* FASTA, FASTQ, JSONL (plain or gzip) or a packed corpus */
        struct config_source *sources; /* a mixture instead of path */
        size_t n_sources;
        int alphabet;                   /* enum alphabet_kind */
        char *text_field;               /* the JSONL field with the sequence */
        int64_t micro_batch_size;       /* windows; 0: not given */
        int64_t token_micro_batch_size; /* tokens; 0: not given */
        int64_t max_seq_length;         /* tokens of a window */
        int64_t stride;                 /* tokens by which the windows of a record overlap */
        int bos_eos;                    /* enum bos_kind */
        int mask_degenerate_bases, mask_tags;
        int uppercase_labels;    /* enum tristate: auto is true for dna and rna */
        double lowercase_weight; /* weight of soft-masked (lower-case) targets */
        int reverse_complement;
        int holdout_by; /* enum holdout_kind */
        double holdout_share;
        int64_t holdout_block; /* bases */
        int64_t read_ahead;    /* micro-batches made ahead by the loader thread */
    } dataset;

    struct {
        int enabled;
        int64_t eval_interval; /* steps */
        int64_t num_batches;   /* micro-batches of the whole grid, in fixed order; 0: all */
        char *data_path;       /* a file of held-out data instead of a share of dataset.path */
    } validation;

    struct {
        char *ckpt_dir;             /* the run folder; default ./runs/DECKNAME */
        char *init_from;            /* weights of another run; NULL: none */
        int64_t save_every_n_steps; /* 0: never */
        int64_t max_checkpoints;    /* newest ones kept; 0: all */
        int64_t keep_every_n_steps; /* and those of every so many steps; 0: no others */
        int64_t max_failures;       /* give up (74) after so many failed saves in a row */
        int async_save;             /* write while training goes on */
        int resume_from_checkpoint; /* go on from the newest one in the run folder */
        int save_final_model;
    } checkpoint;

    struct {
        int64_t frequency; /* steps between printed and recorded rows */
        int progress;      /* enum tristate: a bar with the time left below the rows */
    } logger;

    struct {
        int64_t start_step, end_step; /* that a profiler records; 0: none */
    } profiler;

    struct {
        double max_hours;       /* wall-clock limit of one start; 0: none */
        double reserve_minutes; /* of it, for the last save */
        int64_t max_bad_steps;  /* stop (76) after so many skipped steps in a row */
        char *freeze;           /* patterns of parameter names, a blank between them; NULL: none */
        double spike_mads;      /* how far above the median a loss is an event; 0: never */
        int verdict;            /* end with a verdict on this machine, 70 if something is wrong */
    } train;

    struct {
        int64_t timeout_s; /* 0: no watchdog */
    } watchdog;

    char *deck_name; /* not a key: the deck's name without folder and .yaml */
};

/* Reads `deck` (a file, when the name has a / or ends in .yaml; else the name of an installed
 * deck), then words[n] of the form key=value, over model.config's file, over defaults. On rank 0. A
 * mistake ends in die_user (64: a word without =; 78: all else), naming key, what was seen, where,
 * and the nearest known key. Paths become absolute: in the deck they are relative to it, in words
 * to the working directory. */
struct config *config_load(const char *deck, char *const *words, int n);

/* The same from text that config_write made; any rank. Reads no other file, not even model.config,
 * whose keys the text holds too; paths stay as they are. `name` is used in messages and, without
 * folder and .yaml, as deck_name. */
struct config *config_parse(const char *text, const char *name);

/* Collective over MPI_COMM_WORLD: rank 0 loads and refuses a deck without data to train on, the
 * others get its result; holds the user_agree for it. */
struct config *config_load_all(const char *deck, char *const *words, int n);
/* The same for a model that is only used, from a run's used.yaml or from the config.json of a
 * Hugging Face folder (all other keys then have their defaults); data need not be given. */
struct config *config_load_model(const char *path, char *const *words, int n);
void config_free(struct config *c); /* NULL is fine */

/* Every key with its value, as YAML that config_parse reads back to the same struct: used.yaml. */
void config_write(const struct config *c, FILE *out);

/* Every key with default, unit, range and one sentence, as YAML: input/reference.yaml. */
void config_write_reference(FILE *out);

/* The keys as a help text of `regulon train --help`. */
void config_write_help(FILE *out);

/* Calls visit for every key with its value as text, in the order of the table; "null" for what is
 * not given. */
void config_each(const struct config *c,
                 void (*visit)(const char *key, const char *value, void *context), void *context);

/* `regulon info DECK`: what the deck says, in words: parameters, tokens a step, run folder, keys
 * that differ from their defaults. On rank 0; errors as config_load. */
void config_info(const char *deck, FILE *out);

/* The file of an installed deck, or NULL; the caller frees it. A program that runs from a build
 * folder looks in its source's input/, any other in pkgdatadir/input. */
char *config_find_deck(const char *name);

/* Reads a Hugging Face Mixtral config.json, or that of a folder, into c->model. die_user (78) on
 * what Regulon does not do and on a missing shape. Works without MPI. Does not compare keys with
 * each other. */
void config_read_hf(struct config *c, const char *path);
#endif
