#ifndef REGULON_GENERATE_H
#define REGULON_GENERATE_H
/* `regulon generate RUN [option ...] [key=value ...]`: new sequences from a trained model, as
 * FASTA. Collective over MPI_COMM_WORLD. Returns the exit code. */
int generate_main(int argc, char **argv);
#endif
