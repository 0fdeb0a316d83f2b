/* The state of a run as checkpoints hold it: the FP32 masters and AdamW's two moments, as stretches
 * of rows of global tensors (a tensor as the matrix [all dimensions but the last, last]). */
#ifndef REGULON_CHECKPOINT_STATE_H
#define REGULON_CHECKPOINT_STATE_H
#include "optim/optimizer.h"

enum state_kind { STATE_MASTER, STATE_EXP_AVG, STATE_EXP_AVG_SQ, N_STATES };
const char *state_name(enum state_kind kind); /* "master", "exp_avg", "exp_avg_sq" */

/* Rows [first_row, first_row + rows) of one kind of one tensor. */
struct piece {
    const struct param *param;
    enum state_kind kind;
    int64_t first_row, rows;
    float *data; /* where they lie in this process: backend memory, unless said otherwise; NULL:
                    they are zero, and nowhere */
    size_t n;    /* elements: rows * param->cols */
};

/* Lists of pieces; the array is the caller's, the data the optimiser's and the model's.
 * state_to_save: this rank's part of a partition of the whole state over the world; the moments of
 * frozen tensors are zero. state_to_load: what this rank updates, and its share of what is frozen,
 * without moments. */
struct piece *state_to_save(const struct optimizer *o, int *n);
struct piece *state_to_load(const struct optimizer *o, int *n);

/* Where the rows of a saved state lie, for any grid that may have saved it. state_tables: the
 * parameters of its ep ranks, [ep_size]. state_rows: rows [*first, *first + *rows) of the global
 * tensor `t`, from the table of ep_rank, that the shard of (dp_rank, ep_rank) holds; 0 when none.
 */
struct params **state_tables(const struct shape *s, const struct config *c, int dp_size,
                             int ep_size);
void state_tables_free(struct params **tables, int ep_size);
int state_rows(const struct param *t, int dp_size, int ep_size, int dp_rank, int ep_rank,
               int64_t *first, int64_t *rows);

/* What a run needs besides the tensors to go on. */
struct counters {
    int64_t step;      /* last step done */
    int64_t updates;   /* Adam's t */
    int64_t tokens;    /* real tokens so far, whole grid */
    int64_t bad_steps; /* skipped, in a row */
};
#endif
