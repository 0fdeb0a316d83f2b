/* The small files of a Hugging Face folder. */
#ifndef REGULON_CHECKPOINT_HF_FILES_H
#define REGULON_CHECKPOINT_HF_FILES_H
#include "config/config.h"
#include "model/shape.h"

/* A key of ours in config.json, the step; others pass it over (config/hf.c does, too). */
#define HF_STEP_KEY "regulon_step"

/* Makes the folder that becomes a checkpoint or a Hugging Face folder when it is whole; *made: it
 * is ours. what: "an import". NULL, or what failed: it may be there already. One rank. */
char *hf_begin_folder(const char *temporary, const char *what, int *made);

/* Writes config.json, generation_config.json and, where a token is a character, tokenizer.json and
 * tokenizer_config.json into the folder. dtype: "float32" or "bfloat16". step: of the model, -1:
 * not known. NULL, or what failed, freed by the caller. One rank. */
char *hf_files_write(const char *folder, const struct config *c, const struct shape *s,
                     const char *dtype, int64_t step);

/* What the config.json at `path` says of the tokens, as words for config_load_model: the length
 * that the model is for as dataset.max_seq_length, and dataset.alphabet: dna where a token is a
 * character as far as one can see (our EOS, PAD and BOS, 256 tokens or more), else bytes. Without
 * what words[n] give. Into to[2]; returns how many; the caller frees them. One rank. */
int hf_files_words(const char *path, char *const *words, int n, char *to[2]);
#endif
