#ifndef REGULON_EVAL_H
#define REGULON_EVAL_H
/* `regulon eval RUN [--json] [key=value ...]`: the loss of a run's final model on held-out data.
 * Collective over MPI_COMM_WORLD. Returns the exit code. */
int eval_main(int argc, char **argv);
#endif
