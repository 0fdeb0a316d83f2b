/* The copies for a rank lie together, in the order of their tokens: a stable sort of the tokens'
 * first choices on each rank by rank. */
#include "route_ranks.h"
#include "sort.cuh"

struct by_rank {
    int32_t *copy_of, *place_of, *ids_there;
    float *p_there;
    const int32_t *ids;
    const float *p;
    int A, n_local;

    __device__ int key(int i) const {
        const int rank = ids[i] / n_local;
        return i % A > 0 && ids[i - 1] / n_local == rank ? -1 : rank;
    }

    __device__ void place(int i, int copy) const {
        const int rank = ids[i] / n_local;
        const size_t token = static_cast<size_t>(i / A) * A, there = static_cast<size_t>(copy) * A;
        copy_of[i] = copy;
        for (int a = 0; a < A; a++) {
            const int expert = ids[token + a];
            const bool here = expert / n_local == rank;
            ids_there[there + a] = here ? expert % n_local : -1;
            p_there[there + a] = here ? p[token + a] : 0;
            if (here) place_of[token + a] = static_cast<int32_t>(there) + a;
        }
    }
};

extern "C" void route_ranks(int32_t *first, int32_t *copy_of, int32_t *place_of, int32_t *ids_there,
                            float *p_there, const int32_t *ids, const float *p, void *scratch,
                            int N, int E, int A, int P, cudaStream_t stream) {
    assert(P >= 1 && P <= SORT_KEYS && E % P == 0 && N < (1 << 30) / A);
    if (N == 0) {
        check(cudaMemsetAsync(first, 0, sizeof *first * (static_cast<size_t>(P) + 1), stream));
        return;
    }
    check(cudaMemsetAsync(copy_of, 0xff, sizeof *copy_of * static_cast<size_t>(N) * A, stream));
    sort(by_rank{copy_of, place_of, ids_there, p_there, ids, p, A, E / P},
         sort_places{first, nullptr, 1}, scratch, N * A, P, stream);
}
