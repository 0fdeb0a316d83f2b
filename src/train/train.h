#ifndef REGULON_TRAIN_TRAIN_H
#define REGULON_TRAIN_TRAIN_H
/* `regulon train DECK [--fresh] [key=value ...]`. Collective over MPI_COMM_WORLD. Returns the exit
 * code. */
int train_main(int argc, char **argv);
#endif
