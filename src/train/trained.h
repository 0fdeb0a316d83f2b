/* A model that was trained before, opened to be used: evaluated, scored with, embedded with. */
#ifndef REGULON_TRAIN_TRAINED_H
#define REGULON_TRAIN_TRAINED_H
#include "backend/backend.h"
#include "config/config.h"
#include "model/model.h"

struct trained {
    struct config *config;
    char *weights; /* the folder that holds them; rank 0, NULL on the others */
    struct grid grid;
    struct backend *be;
    struct model *model; /* NULL before trained_load */
};

/* Finds MODEL (a run folder, one of its step folders or its final_model, or a Hugging Face folder)
 * and what is known of it, under words[n] of the form key=value. die_user (65) where there is none.
 * Only rank 0's `model` is looked at. Collective over MPI_COMM_WORLD; trained_close frees it. */
void trained_find(struct trained *t, const char *model, char *const *words, int n);

/* Opens grid, watchdog and backend. `spread`: unless words say parallelism.*, the experts are
 * spread over as many ranks as divide both the ranks and the experts; else every rank has them all
 * unless words say otherwise. Collective. */
void trained_open(struct trained *t, char *const *words, int n, int spread);

/* Makes the model for micro-batches of `capacity` tokens and loads its weights. Collective. */
void trained_load(struct trained *t, int capacity);
void trained_close(struct trained *t);
#endif
