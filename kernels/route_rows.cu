/* The rows of an expert lie together, in the order of their tokens: a stable sort of the (token,
 * choice) pairs by expert. */
#include "route_rows.h"
#include "sort.cuh"

struct by_expert {
    int32_t *row_of, *row_token;
    float *row_p;
    const int32_t *ids;
    const float *p;
    int A;

    __device__ int key(int i) const { return ids[i]; }

    __device__ void place(int i, int row) const {
        row_of[i] = row;
        row_token[row] = i / A;
        row_p[row] = p[i];
    }
};

extern "C" void route_rows(int32_t *offsets, int32_t *row_of, int32_t *row_token, float *row_p,
                           const int32_t *ids, const float *p, void *scratch, int N, int E, int A,
                           cudaStream_t stream) {
    if (N == 0) {
        check(cudaMemsetAsync(offsets, 0, sizeof *offsets * (static_cast<size_t>(E) + 1), stream));
        return;
    }
    assert(E >= 1 && E <= SORT_KEYS && N < (1 << 30) / A);
    struct by_expert pairs = {row_of, row_token, row_p, ids, p, A};
    sort(pairs, offsets, scratch, N * A, E, stream);
}
