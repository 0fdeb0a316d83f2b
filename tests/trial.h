/* A small model on a grid, opened in one call, for the tests that train or differentiate one. */
#ifndef REGULON_TESTS_TRIAL_H
#define REGULON_TESTS_TRIAL_H
#include "model/model.h"
#include "optim/optimizer.h"

struct trial_room;

struct trial {
    struct config *c;
    struct grid g;
    struct backend *be;
    struct model *m;
    struct optimizer *o;
    struct trial_room *rooms; /* [n_rooms] what the model allocated */
    int n_rooms;
};

/* The backend that TEST_BACKEND names ("cpu" without it), in FP32 where TEST_FP32 is set, with the
 * attention (own or cudnn) that TEST_ATTENTION names, and the experts (grouped or cublaslt) that
 * TEST_EXPERTS names; on the CPU an expert's rows begin at multiples of TEST_ROW_UNIT. */
struct backend *trial_backend(const struct grid *g);

/* The model of `deck` (YAML text without dp_size and ep_size) with its initial weights, and an
 * optimizer, on comm as a dp x ep grid. All of the model's memory but the weights and the selection
 * bias is poisoned. Collective over comm; trial_close too. */
void trial_open(struct trial *t, MPI_Comm comm, int dp, int ep, const char *deck);
void trial_close(struct trial *t);

/* Fills gradients, activations and what the exchange keeps with NaN: a pass that reads what it has
 * not written shows. */
void trial_poison(struct trial *t);

/* What the model has asked the backend for. */
size_t trial_bytes(const struct trial *t);

/* This rank's weights, moments and bias. */
uint64_t trial_hash(const struct trial *t);

/* Removes the checkpoints in a run folder, its files, and the folder. One rank. */
void trial_remove_run(const char *folder);

/* Relative difference to a reference; 0 when both are 0; infinite for NaN. */
double trial_error(double value, double reference);
#endif
