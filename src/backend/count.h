/* A backend that computes nothing: it takes note of what is asked of alloc, with the sizes of the
 * backend whose name it is opened by. A model made on it tells what the real one would take,
 * without the memory, a GPU or other ranks. Of the table only alloc, release, reserve and moe_new,
 * moe_rows, moe_stash, moe_free are there. */
#ifndef REGULON_BACKEND_COUNT_H
#define REGULON_BACKEND_COUNT_H
#include "backend/backend.h"

/* Who asked: the model and what lies above it, moe_new, or reserve. */
enum count_kind { COUNT_MODEL, COUNT_EXCHANGE, COUNT_WORKSPACE, N_COUNT_KINDS };

/* "cpu" or "cuda", also where this build has no CUDA; of g only the sizes and this rank's place are
 * looked at. capability: that of GPUs. backend_close closes it. */
struct backend *count_open(const char *name, const struct grid *g, const struct backend_options *o,
                           int capability);

/* Bytes of the model's array that begins at p, the first time; 0 then, and for NULL. */
size_t count_take(struct backend *be, const void *p);

/* Bytes of this kind that were not taken. */
size_t count_rest(const struct backend *be, enum count_kind kind);

/* What the allocations cost beyond what was asked for. */
size_t count_overhead(const struct backend *be);

/* The attention that the sizes hold for: "cudnn", "own". After reserve. */
const char *count_attention(const struct backend *be);
#endif
