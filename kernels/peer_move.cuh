/* What moves rows as they are and in eight bits have in common. */
#ifndef REGULON_KERNELS_PEER_MOVE_CUH
#define REGULON_KERNELS_PEER_MOVE_CUH
#include "peers.cuh"

/* Threads of a block that pushes; threads and blocks of what a rank does by itself. */
enum { PUSHERS = 1024, LOCAL = 256, LOCAL_BLOCKS = 1056 };

static __device__ __forceinline__ int lane() {
    return threadIdx.x % 32;
}

/* Of those that push. */
static __device__ __forceinline__ int first_warp() {
    return static_cast<int>(blockIdx.x) * (PUSHERS / 32) + threadIdx.x / 32;
}

static __device__ __forceinline__ int n_warps() {
    return static_cast<int>(gridDim.x) * (PUSHERS / 32);
}

/* Where a token goes for its choice `lane`; null where its rank has the token already. own: it is
 * this one. n: units of a row. */
template <class T>
static __device__ __forceinline__ T *pushed_to(bool &own, const peers &rows, const int32_t *base,
                                               const int32_t *row_of, const int32_t *ids, int token,
                                               int A, int n, int n_local) {
    const size_t choice = static_cast<size_t>(token) * A + lane();
    own = false;
    if (lane() >= A) return nullptr;
    const int rank = ids[choice] / n_local;
    own = rank == rows.me;
    if (!own && lane() > 0 && ids[choice - 1] / n_local == rank) return nullptr;
    return static_cast<T *>(rows.at[rank]) +
           static_cast<size_t>((base ? base[rank] : 0) + row_of[choice]) * n;
}

/* Lane k gets the k-th row, of at most 32, of the chain that begins at `head` with the mark `next`;
 * by the whole warp. */
static __device__ __forceinline__ int chain_list(int &length, const int32_t *chain, int head,
                                                 int next) {
    int list = head;
    length = 1;
    for (int row = next > 0 ? next - 1 : -1; row >= 0; length++) {
        if (lane() == length) list = row;
        row = -chain[row] - 1;
    }
    return list;
}

/* By all of LOCAL_BLOCKS blocks of LOCAL threads. n: units of 16 bytes in a row. */
static __device__ __forceinline__ void zero_pads(uint4 *rows, const int32_t *offsets,
                                                 const int32_t *ends, int n_local, int n) {
    for (int e = 0; e < n_local; e++)
        for (int row = ends[e] + static_cast<int>(blockIdx.x); row < offsets[e + 1];
             row += LOCAL_BLOCKS)
            for (int j = threadIdx.x; j < n; j += LOCAL)
                rows[static_cast<size_t>(row) * n + j] = make_uint4(0, 0, 0, 0);
}

static inline __host__ __device__ int row_units(size_t bytes, int D) {
    return static_cast<int>(static_cast<size_t>(D) * bytes / sizeof(uint4));
}
#endif
