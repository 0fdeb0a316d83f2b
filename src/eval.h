#ifndef REGULON_EVAL_H
#define REGULON_EVAL_H
#include "config/config.h"

/* `regulon eval RUN [--json] [key=value ...]`: the loss of a run's final model on held-out data.
 * Collective over MPI_COMM_WORLD. Returns the exit code. */
int eval_main(int argc, char **argv);

/* For the other verbs that take a trained model. The deck and the folder with the weights of MODEL,
 * a run folder or one of its step folders; die_user (65) where it is neither. Rank 0; the caller
 * frees both. */
void eval_find_model(const char *model, char **deck, char **weights);

/* A model may be used on another number of ranks than it was trained on: unless the command line
 * (words[n]) says how, its experts are spread over as many of them as divide both the ranks and the
 * experts. */
void eval_choose_grid(struct config *c, char *const *words, int n);
#endif
