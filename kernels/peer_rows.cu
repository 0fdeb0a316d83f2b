/* A rank sorts its choices by expert, tells all others how many there are of each, and knows from
 * the others' numbers where its own lie among the rows of each rank. */
#include "peer_rows.h"
#include "peers.cuh"
#include "sort.cuh"
#include "stash.cuh"

struct choices {
    int32_t *place_of, *choice_at;
    const int32_t *ids;

    __device__ int key(int i) const { return ids[i]; }

    __device__ void place(int i, int at) const {
        place_of[i] = at;
        choice_at[at] = i;
    }
};

static __device__ __forceinline__ float *p_of(const peer_marks &m, int rank) {
    return static_cast<float *>(m.at.at[rank]);
}

static __device__ __forceinline__ int32_t *chain_of(const peer_marks &m, int rank) {
    return reinterpret_cast<int32_t *>(p_of(m, rank) + m.rows);
}

/* A thread an expert. */
static __global__ void __launch_bounds__(SORT_KEYS)
    lay_out(int32_t *offsets, int32_t *ends, int32_t *shift, stash_place stash, peer_marks marks,
            peers boards, const int32_t *begins, int E, int unit) {
    __shared__ int32_t sum[SORT_KEYS + 1];
    const int e = threadIdx.x, n_local = E / boards.n, me = boards.me;
    const int first = e < E ? begins[e] : 0, own = e < E ? begins[e + 1] - first : 0;
    for (int r = 0; r < boards.n; r++)
        if (e < E) board_of(boards, r)->counts[me][e] = own;
    meet(boards);
    int before = 0, all = 0;
    for (int r = 0; r < boards.n && e < E; r++) {
        const int count = read_afresh(&board_of(boards, me)->counts[r][e]);
        if (r < me) before += count;
        all += count;
    }
    const int room = ceil_div(all, unit) * unit;
    if (e == 0) sum[0] = 0;
    sum[e + 1] = room;
    __syncthreads();
    for (int step = 1; step < SORT_KEYS; step *= 2) {
        const int below = e + 1 > step ? sum[e + 1 - step] : 0;
        __syncthreads();
        sum[e + 1] += below;
        __syncthreads();
    }
    if (stash.base && e < boards.n)
        place_rows(stash, e, me, sum[(e + 1) * n_local] - sum[e * n_local]);
    if (e >= E) return;
    const int rank = e / n_local, begin = sum[e] - sum[rank * n_local];
    shift[e] = begin + before - first;
    if (rank != me) return;
    const int local = e - rank * n_local;
    offsets[local] = begin, ends[local] = begin + all;
    if (local == n_local - 1) offsets[n_local] = begin + room;
    for (int row = begin + all; row < begin + room; row++)
        p_of(marks, me)[row] = 0, chain_of(marks, me)[row] = 0;
}

enum { THREADS = 256 };

/* A thread a place, so that neighbours write neighbouring rows. */
static __global__ void __launch_bounds__(THREADS)
    tell(int32_t *row_of, unsigned long long *sent, peer_marks marks, peer_order order,
         const int32_t *ids, const float *p, int n, int A, int n_local) {
    __shared__ unsigned tokens[PEERS];
    if (threadIdx.x < PEERS) tokens[threadIdx.x] = 0;
    __syncthreads();
    const int at = static_cast<int>(blockIdx.x) * THREADS + threadIdx.x;
    if (at < n) {
        const int i = order.choice_at[at], expert = ids[i], rank = expert / n_local;
        const bool first = i % A == 0 || ids[i - 1] / n_local != rank;
        const bool more = i % A < A - 1 && ids[i + 1] / n_local == rank;
        const int row = at + order.shift[expert];
        const int next = more ? order.place_of[i + 1] + order.shift[ids[i + 1]] + 1 : 0;
        row_of[i] = row;
        p_of(marks, rank)[row] = p[i];
        chain_of(marks, rank)[row] = rank == marks.at.me ? 0
                                     : !first            ? -next
                                     : more              ? next
                                                         : PEER_LONE;
        if (first) atomicAdd(&tokens[rank], 1);
    }
    __syncthreads();
    if (threadIdx.x < marks.at.n && tokens[threadIdx.x])
        atomicAdd(&sent[threadIdx.x], static_cast<unsigned long long>(tokens[threadIdx.x]));
}

extern "C" void peer_rows(int32_t *offsets, int32_t *ends, int32_t *row_of,
                          unsigned long long *sent, struct stash_place stash,
                          struct peer_marks marks, struct peer_order order, struct peers boards,
                          const int32_t *ids, const float *p, void *scratch, int N, int E, int A,
                          int unit, cudaStream_t stream) {
    assert(boards.n <= PEERS && E % boards.n == 0 && E <= SORT_KEYS && N < (1 << 30) / A);
    const int n = N * A, n_local = E / boards.n;
    if (n > 0)
        sort(choices{order.place_of, order.choice_at, ids}, sort_places{order.begins, nullptr, 1},
             scratch, n, E, stream);
    else
        check(cudaMemsetAsync(order.begins, 0, sizeof *order.begins * (static_cast<size_t>(E) + 1),
                              stream));
    lay_out<<<1, SORT_KEYS, 0, stream>>>(offsets, ends, order.shift, stash, marks, boards,
                                         order.begins, E, unit);
    check(cudaGetLastError());
    if (n == 0) return;
    tell<<<ceil_div(n, THREADS), THREADS, 0, stream>>>(row_of, sent, marks, order, ids, p, n, A,
                                                       n_local);
    check(cudaGetLastError());
}

static __global__ void __launch_bounds__(32) meet_alone(peers boards) {
    meet(boards);
}

extern "C" void peers_meet(struct peers boards, cudaStream_t stream) {
    meet_alone<<<1, 32, 0, stream>>>(boards);
    check(cudaGetLastError());
}
