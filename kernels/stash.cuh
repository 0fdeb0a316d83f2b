/* The arithmetic of stash.h, for kernels that know the rows of several ranks. */
#ifndef REGULON_KERNELS_STASH_CUH
#define REGULON_KERNELS_STASH_CUH
#include "stash.h"

static __device__ __forceinline__ bool place_one(const struct stash_place &p, int i, int room,
                                                 int rows) {
    const int first = p.before ? p.before[i] : 0;
    const bool fits = first + rows <= room;
    p.base[i] = fits && !p.again ? first : 0;
    p.ends[i] = first + rows;
    return fits;
}

/* By one thread a rank: its rows, and this rank's z. */
static __device__ __forceinline__ void place_rows(const struct stash_place &p, int rank, int me,
                                                  int rows) {
    bool fits = place_one(p, 1 + rank, p.rows, rows);
    if (rank != me) return;
    fits &= place_one(p, 0, p.z, p.z ? rows : 0);
    if (!fits && !p.again) *p.overflow = __longlong_as_double(0x7ff0000000000000ll);
    p.need[0] = fmax(p.need[0], static_cast<double>(p.ends[1 + me]));
    p.need[1] = fmax(p.need[1], static_cast<double>(p.ends[0]));
}
#endif
