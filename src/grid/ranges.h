/* The watchdog's marks as NVTX ranges, which a profiler such as Nsight Systems shows beside the
 * GPU's work: a part, in it a phase, in it an exchange; step and layer are their payloads. They
 * cost nothing without a profiler, and are nothing in a build without NVTX. Only the watchdog calls
 * this, on the main thread. */
#ifndef REGULON_GRID_RANGES_H
#define REGULON_GRID_RANGES_H
#include "grid/watchdog.h"

void ranges_part(enum watchdog_part part, int64_t step);
void ranges_phase(enum watchdog_phase phase, int layer);
void ranges_exchange(int waits);
#endif
