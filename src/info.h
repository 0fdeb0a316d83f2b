#ifndef REGULON_INFO_H
#define REGULON_INFO_H
/* `regulon info FILE...`: says what a deck, corpus, metrics file, run folder or checkpoint holds;
 * --verify and --diff for checkpoints; --folder DECK [key=value ...]: the run folder that training
 * would use. Works on rank 0. Returns the exit code on all ranks: 65 when a checkpoint is damaged;
 * of --diff 1 when the two differ. */
int info_main(int argc, char **argv);
#endif
