/* What a fuzz target and its two drivers, libFuzzer and replay.c, share. */
#ifndef REGULON_TESTS_FUZZ_H
#define REGULON_TESTS_FUZZ_H
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* aborts where something is wrong */
#endif
