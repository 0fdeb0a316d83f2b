/* Two checkpoints, value by value. */
#ifndef REGULON_CHECKPOINT_COMPARE_H
#define REGULON_CHECKPOINT_COMPARE_H
#include <stdio.h>

/* Compares the tensors of two step folders (as contents_folder gives them), saved by any grids at
 * any steps: masters, moments, the router's selection bias; values are equal when their bits are.
 * Prints "equal", or the first tensor that differs: name, kind, its first element that does, both
 * values, and how many of its values differ. Returns 0 when equal, 1 when not. All files are hashed
 * first; die_user (65) on what is damaged or missing. Reads the shards in pieces
 * of piece_bytes, at least a row. One rank, alone. */
int compare_checkpoints(const char *a, const char *b, size_t piece_bytes, FILE *out);
#endif
