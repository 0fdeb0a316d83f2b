/* A warp a row. Between ranks few blocks are enough for a link, since stores do not wait and a warp
 * has several loads in flight; what a rank does by itself takes the whole GPU. */
#include "peer_move.h"
#include "peers.cuh"

enum { THREADS = 1024, WARPS = THREADS / 32, PUSHED = 4, PULLED = 2 };

static __device__ __forceinline__ int lane() {
    return threadIdx.x % 32;
}

static __device__ __forceinline__ int first_warp() {
    return static_cast<int>(blockIdx.x) * WARPS + threadIdx.x / 32;
}

static __device__ __forceinline__ int n_warps() {
    return static_cast<int>(gridDim.x) * WARPS;
}

/* n: units of 16 bytes in a row */
static __global__ void __launch_bounds__(THREADS, 1)
    push(peers rows, const uint4 *x, const int32_t *row_of, const int32_t *ids, int N, int A, int n,
         int n_local) {
    for (int token = first_warp(); token < N; token += n_warps()) {
        const size_t choice = static_cast<size_t>(token) * A;
        const uint4 *from = x + static_cast<size_t>(token) * n;
        /* where to: of choice `lane`, null where its rank has the token already */
        uint4 *mine = nullptr;
        if (lane() < A) {
            const int rank = ids[choice + lane()] / n_local;
            const bool there =
                rank != rows.me && lane() > 0 && ids[choice + lane() - 1] / n_local == rank;
            if (!there)
                mine = static_cast<uint4 *>(rows.at[rank]) +
                       static_cast<size_t>(row_of[choice + lane()]) * n;
        }
        const unsigned wanted = __ballot_sync(~0u, mine != nullptr);
        for (int first = lane(); first - lane() < n; first += 32 * PUSHED) {
            uint4 v[PUSHED];
#pragma unroll
            for (int k = 0; k < PUSHED; k++)
                if (first + 32 * k < n) v[k] = from[first + 32 * k];
            for (unsigned left = wanted; left; left &= left - 1) {
                const auto address = reinterpret_cast<unsigned long long>(mine);
                uint4 *to = reinterpret_cast<uint4 *>(__shfl_sync(~0u, address, __ffs(left) - 1));
#pragma unroll
                for (int k = 0; k < PUSHED; k++)
                    if (first + 32 * k < n) to[first + 32 * k] = v[k];
            }
        }
    }
}

enum { LOCAL = 512 /* threads */, LOCAL_BLOCKS = 528, SPAN = 8, SUMMED = 4 };

/* Calls use(list, length) with the rows of every chain that begins among `rows`, by the whole warp:
 * lane k has the k-th row of the chain, of at most 32. A warp looks for SPAN rows at a time. */
template <class Use>
static __device__ __forceinline__ void each_chain(const int32_t *chain, int rows, Use use) {
    const int warps = LOCAL_BLOCKS * (LOCAL / 32),
              mine = static_cast<int>(blockIdx.x) * (LOCAL / 32) + threadIdx.x / 32;
    for (int base = mine * SPAN; base < rows; base += warps * SPAN) {
        const int next = lane() < SPAN && base + lane() < rows ? chain[base + lane()] : 0;
        for (unsigned heads = __ballot_sync(~0u, next > 0); heads; heads &= heads - 1) {
            const int head = __ffs(heads) - 1;
            int list = base + head, length = 1;
            for (int row = __shfl_sync(~0u, next, head) - 1; row >= 0; length++) {
                if (lane() == length) list = row;
                row = -chain[row] - 1;
            }
            use(list, length);
        }
    }
}

static __global__ void __launch_bounds__(LOCAL, 2)
    repeat(uint4 *rows, const int32_t *chain, const int32_t *offsets, const int32_t *ends,
           int n_local, int n) {
    for (int e = 0; e < n_local; e++)
        for (int row = ends[e] + static_cast<int>(blockIdx.x); row < offsets[e + 1];
             row += LOCAL_BLOCKS)
            for (int j = threadIdx.x; j < n; j += LOCAL)
                rows[static_cast<size_t>(row) * n + j] = make_uint4(0, 0, 0, 0);
    each_chain(chain, offsets[n_local], [&](int list, int length) {
        for (int first = lane(); first - lane() < n; first += 32 * PUSHED) {
            const uint4 *from = rows + static_cast<size_t>(__shfl_sync(~0u, list, 0)) * n;
            uint4 v[PUSHED];
#pragma unroll
            for (int k = 0; k < PUSHED; k++)
                if (first + 32 * k < n) v[k] = from[first + 32 * k];
            for (int i = 1; i < length; i++) {
                uint4 *to = rows + static_cast<size_t>(__shfl_sync(~0u, list, i)) * n;
#pragma unroll
                for (int k = 0; k < PUSHED; k++)
                    if (first + 32 * k < n) to[first + 32 * k] = v[k];
            }
        }
    });
}

template <class T>
static __global__ void __launch_bounds__(LOCAL, 2)
    sum_chains(T *rows, const int32_t *chain, const int32_t *offsets, int n_local, int D) {
    each_chain(chain, offsets[n_local], [&](int list, int length) {
        for (int j = lane() * 8; j - lane() * 8 < D; j += 32 * 8) {
            float sum[8] = {};
            for (int first = 0; first < length; first += SUMMED) {
                vec<T, 8> v[SUMMED];
#pragma unroll
                for (int k = 0; k < SUMMED; k++) {
                    const size_t row = static_cast<size_t>(__shfl_sync(~0u, list, first + k));
                    if (first + k < length && j < D) v[k] = load<8>(rows + row * D + j);
                }
#pragma unroll
                for (int k = 0; k < SUMMED; k++) {
                    if (first + k >= length || j >= D) continue;
                    float f[8];
                    unpack(f, v[k]);
#pragma unroll
                    for (int i = 0; i < 8; i++) sum[i] += f[i];
                }
            }
            const size_t head = static_cast<size_t>(__shfl_sync(~0u, list, 0));
            if (j < D) store(rows + head * D + j, pack<T>(sum));
        }
    });
}

template <class T>
static __global__ void __launch_bounds__(THREADS, 1)
    pull(T *out, peers rows, const int32_t *row_of, const int32_t *ids, int N, int A, int D,
         int n_local) {
    for (int token = first_warp(); token < N; token += n_warps()) {
        const size_t choice = static_cast<size_t>(token) * A;
        int rank = -1;
        const T *mine = nullptr; /* from where: of choice `lane` */
        if (lane() < A) {
            rank = ids[choice + lane()] / n_local;
            mine = static_cast<const T *>(rows.at[rank]) +
                   static_cast<size_t>(row_of[choice + lane()]) * D;
        }
        const int earlier = __shfl_up_sync(~0u, rank, 1);
        const unsigned own = __ballot_sync(~0u, rank == rows.me);
        const unsigned wanted =
            __ballot_sync(~0u, rank >= 0 && (rank == rows.me || lane() == 0 || earlier != rank));
        for (int first = lane() * 8; first - lane() * 8 < D; first += 32 * 8 * PULLED) {
            float sum[PULLED][8] = {}, part[PULLED][8] = {};
            for (unsigned left = wanted; left; left &= left - 1) {
                const int a = __ffs(left) - 1;
                const auto address = reinterpret_cast<unsigned long long>(mine);
                const T *from = reinterpret_cast<const T *>(__shfl_sync(~0u, address, a));
                vec<T, 8> v[PULLED];
#pragma unroll
                for (int k = 0; k < PULLED; k++)
                    if (first + 256 * k < D) v[k] = load<8>(from + first + 256 * k);
                const bool here = own >> a & 1, last = here && !(own >> a >> 1 & 1);
#pragma unroll
                for (int k = 0; k < PULLED; k++) {
                    if (first + 256 * k >= D) continue;
                    float f[8];
                    unpack(f, v[k]);
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        if (here)
                            part[k][i] += f[i];
                        else
                            sum[k][i] += f[i];
                        /* as it would have been rounded to travel */
                        if (last) sum[k][i] += to_float(from_float<T>(part[k][i]));
                    }
                }
            }
#pragma unroll
            for (int k = 0; k < PULLED; k++)
                if (first + 256 * k < D)
                    store(out + static_cast<size_t>(token) * D + first + 256 * k, pack<T>(sum[k]));
        }
    }
}

enum { VALUES = 256 };

static __global__ void __launch_bounds__(VALUES)
    pull_values(float *out, peers values, const int32_t *row_of, const int32_t *ids, int n,
                int n_local) {
    const int i = static_cast<int>(blockIdx.x) * VALUES + threadIdx.x;
    if (i < n) out[i] = static_cast<const float *>(values.at[ids[i] / n_local])[row_of[i]];
}

static int units(enum real t, int D) {
    assert(D % 8 == 0);
    return static_cast<int>(static_cast<size_t>(D) * real_bytes(t) / sizeof(uint4));
}

extern "C" void peer_push(enum real t, struct peers rows, const void *x, const int32_t *row_of,
                          const int32_t *ids, int N, int E, int A, int D, int blocks,
                          cudaStream_t stream) {
    assert(A <= PEER_CHOICES && aligned16(x));
    if (N == 0) return;
    push<<<blocks, THREADS, 0, stream>>>(rows, static_cast<const uint4 *>(x), row_of, ids, N, A,
                                         units(t, D), E / rows.n);
    check(cudaGetLastError());
}

extern "C" void peer_repeat(enum real t, void *rows, const int32_t *chain, const int32_t *offsets,
                            const int32_t *ends, int n_local, int D, cudaStream_t stream) {
    repeat<<<LOCAL_BLOCKS, LOCAL, 0, stream>>>(static_cast<uint4 *>(rows), chain, offsets, ends,
                                               n_local, units(t, D));
    check(cudaGetLastError());
}

extern "C" void peer_sum(enum real t, void *rows, const int32_t *chain, const int32_t *offsets,
                         int n_local, int D, cudaStream_t stream) {
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        sum_chains<<<LOCAL_BLOCKS, LOCAL, 0, stream>>>(static_cast<T *>(rows), chain, offsets,
                                                       n_local, D);
    });
    check(cudaGetLastError());
}

extern "C" void peer_pull(enum real t, void *out, struct peers rows, const int32_t *row_of,
                          const int32_t *ids, int N, int E, int A, int D, int blocks,
                          cudaStream_t stream) {
    assert(A <= PEER_CHOICES && D % 8 == 0 && aligned16(out));
    if (N == 0) return;
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        pull<<<blocks, THREADS, 0, stream>>>(static_cast<T *>(out), rows, row_of, ids, N, A, D,
                                             E / rows.n);
    });
    check(cudaGetLastError());
}

extern "C" void peer_pull_values(float *out, struct peers values, const int32_t *row_of,
                                 const int32_t *ids, int N, int E, int A, cudaStream_t stream) {
    const int n = N * A;
    if (n == 0) return;
    pull_values<<<ceil_div(n, VALUES), VALUES, 0, stream>>>(out, values, row_of, ids, n,
                                                            E / values.n);
    check(cudaGetLastError());
}
