/* Stands in for CUDA's runtime, as far as collectives over peer memory go, on machines without a
 * GPU: streams are threads that do their work in order and pause now and then, device memory is
 * memory that other processes open by a handle. Only for backend/cuda_beside.c, cuda_pull.c and
 * cuda_window.c. */
#ifndef REGULON_TESTS_STAND_IN_CUDART_H
#define REGULON_TESTS_STAND_IN_CUDART_H

/* From here on this fails. */
enum stand_in_failure { FAILS_NOTHING, FAILS_ENTRY, FAILS_OPEN, FAILS_OPS };
void stand_in_fails(enum stand_in_failure what);
#endif
