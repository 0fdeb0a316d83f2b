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
 * attention (own or cudnn) that TEST_ATTENTION names, and the experts (grouped, cublaslt, or
 * unfused: grouped where they serve, without fusion) that TEST_EXPERTS names, and the ways (peer or
 * nccl) of TEST_EXCHANGE and, beside other work, TEST_COLLECTIVES; on the CPU an expert's rows
 * begin at multiples of TEST_ROW_UNIT, and lie in a stash where TEST_STASH is set. */
struct backend *trial_backend(const struct grid *g);

/* `deck` (YAML text without model, dp_size and ep_size) with the model of a folder's config.json.
 * Collective over world; the caller frees it. */
struct config *trial_golden_config(const char *folder, const char *deck, const struct grid *g);

/* 0, and a note, where the model is nothing for a GPU and the backend is one's. */
int trial_serves(const struct backend *be, const struct config *c, const char *folder);

/* The model of `deck` (YAML text without dp_size and ep_size) with its initial weights, and an
 * optimizer, on comm as a dp x ep grid. All of the model's memory but the weights and the selection
 * bias is poisoned. Collective over comm; trial_close too. */
void trial_open(struct trial *t, MPI_Comm comm, int dp, int ep, const char *deck);
void trial_close(struct trial *t);

/* The same, with what the test changes in the backend before the model is made on it. */
void trial_open_on(struct trial *t, MPI_Comm comm, int dp, int ep, const char *deck,
                   void (*prepare)(struct backend *be));

/* Fills gradients, activations and what the exchange keeps with NaN: a pass that reads what it has
 * not written shows. Collective over the trial's grid. */
void trial_poison(struct trial *t);

/* The gradient of this rank's part of parameter i, whole[n] in host memory, after step_gradients.
 * Collective over share_group. */
void trial_gradient(const struct model *m, int i, float *whole);

/* What the model has asked the backend for. */
size_t trial_bytes(const struct trial *t);

/* This rank's weights, moments and bias. */
uint64_t trial_hash(const struct trial *t);

/* Removes the checkpoints in a run folder, its files, and the folder. One rank. */
void trial_remove_run(const char *folder);

/* Relative difference to a reference; 0 when both are 0; infinite for NaN. */
double trial_error(double value, double reference);
#endif
