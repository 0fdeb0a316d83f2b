/* `regulon info` for checkpoints: what one holds, whether it is sound, what a run folder has. */
#ifndef REGULON_CHECKPOINT_INSPECT_H
#define REGULON_CHECKPOINT_INSPECT_H
#include <stdio.h>

struct inspection {
    int verify; /* hash every file again */
    int json;   /* one JSON object instead of words */
};

/* Prints the checkpoint of a step folder (as contents_folder gives it): run, grid, step, tensors,
 * files. Without verify index.h5 alone is hashed, and the data are not read; with it all files are,
 * through a buffer of 1 MiB. What is wrong goes to stderr as well, file and dataset named; returns
 * 0, or EXIT_DATA when something is. One rank. */
int inspect_checkpoint(const char *folder, struct inspection how, FILE *out);

/* Prints a line for each checkpoint of a run folder, newest first; nothing when there is none. One
 * rank. */
void inspect_run(const char *run, FILE *out);
#endif
