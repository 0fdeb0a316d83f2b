/* `regulon bench NAME`: what this machine does with the parts of a step. */
#ifndef REGULON_BENCH_BENCH_H
#define REGULON_BENCH_BENCH_H

/* The words after `bench`; returns the exit code: 70 where a result is wrong. Collective over
 * MPI_COMM_WORLD. */
int bench_main(int argc, char **argv);
#endif
