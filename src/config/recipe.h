/* The keys of the PyTorch recipes for the same models (the hydra files of NVIDIA BioNeMo), each
 * with ours or with the reason why there is none: people bring their files along. */
#ifndef REGULON_CONFIG_RECIPE_H
#define REGULON_CONFIG_RECIPE_H
#include <stddef.h>

struct recipe_key {
    const char *key;  /* "adamw_kwargs.lr"; "wandb.*" is wandb and all below it */
    const char *ours; /* our key, or NULL */
    const char
        *note; /* with ours: what differs, or NULL; without: why there is none, after "because" */
};
extern const struct recipe_key recipe_keys[];
extern const size_t n_recipe_keys;

/* What to tell someone who gives this key: a new string, or NULL when it is no key of a recipe. */
char *recipe_answer(const char *key);
#endif
