/* A warp a row. Between ranks few blocks are enough for a link, since stores do not wait and a warp
 * has several loads in flight; what a rank does by itself takes the whole GPU. */
#include "peer_move.h"
#include "peer_move.cuh"

enum { PUSHED = 4 };

/* n: units of 16 bytes in a row */
static __global__ void __launch_bounds__(PUSHERS, 1)
    push(peers rows, const int32_t *base, const uint4 *x, const int32_t *row_of, const int32_t *ids,
         int N, int A, int n, int n_local) {
    for (int token = first_warp(); token < N; token += n_warps()) {
        const uint4 *from = x + static_cast<size_t>(token) * n;
        bool own;
        uint4 *mine = pushed_to<uint4>(own, rows, base, row_of, ids, token, A, n, n_local);
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

enum { SPAN = 8 /* rows */, PART = 128 /* units */ };

/* Calls use(list, length, part) with the rows of every chain that begins among `rows` and each part
 * of a row, by a whole warp: lane k has the k-th row of the chain, of at most 32. */
template <class Use>
static __device__ __forceinline__ void each_chain(const int32_t *chain, int rows, int parts,
                                                  Use use) {
    const int warps = LOCAL_BLOCKS * (LOCAL / 32),
              mine = static_cast<int>(blockIdx.x) * (LOCAL / 32) + threadIdx.x / 32,
              spans = ceil_div(rows, SPAN);
    for (int task = mine; task < spans * parts; task += warps) {
        const int base = task / parts * SPAN;
        const int next = lane() < SPAN && base + lane() < rows ? chain[base + lane()] : 0;
        for (unsigned heads = __ballot_sync(~0u, next > 0); heads; heads &= heads - 1) {
            const int head = __ffs(heads) - 1;
            int length;
            const int list = chain_list(length, chain, base + head, __shfl_sync(~0u, next, head));
            use(list, length, task % parts);
        }
    }
}

/* n: units of 16 bytes in a row */
static __global__ void __launch_bounds__(LOCAL, 4)
    repeat(uint4 *rows, const int32_t *base, const int32_t *chain, const int32_t *offsets,
           const int32_t *ends, int n_local, int n) {
    enum { EACH = PART / 32 };
    if (base) rows += static_cast<size_t>(*base) * n;
    zero_pads(rows, offsets, ends, n_local, n);
    each_chain(chain, offsets[n_local], ceil_div(n, PART), [&](int list, int length, int part) {
        const int first = part * PART + lane();
        const uint4 *from = rows + static_cast<size_t>(__shfl_sync(~0u, list, 0)) * n;
        uint4 v[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (first + 32 * k < n) v[k] = from[first + 32 * k];
        for (int i = 1; i < length; i++) {
            uint4 *to = rows + static_cast<size_t>(__shfl_sync(~0u, list, i)) * n;
#pragma unroll
            for (int k = 0; k < EACH; k++)
                if (first + 32 * k < n) to[first + 32 * k] = v[k];
        }
    });
}

template <class T>
static __global__ void __launch_bounds__(LOCAL, 3)
    sum_chains(T *rows, const int32_t *chain, const int32_t *offsets, int n_local, int D) {
    enum { EACH = 2, AT_ONCE = 2, WIDTH = EACH * 32 * 8 };
    each_chain(chain, offsets[n_local], ceil_div(D, WIDTH), [&](int list, int length, int part) {
        const int j = part * WIDTH + lane() * 8;
        float sum[EACH][8] = {};
        for (int first = 0; first < length; first += AT_ONCE) {
            vec<T, 8> v[AT_ONCE][EACH];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const size_t row = static_cast<size_t>(__shfl_sync(~0u, list, first + i));
#pragma unroll
                for (int k = 0; k < EACH; k++)
                    if (first + i < length && j + 256 * k < D)
                        v[i][k] = load<8>(rows + row * D + j + 256 * k);
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                for (int k = 0; k < EACH; k++) {
                    if (first + i >= length || j + 256 * k >= D) continue;
                    float f[8];
                    unpack(f, v[i][k]);
#pragma unroll
                    for (int m = 0; m < 8; m++) sum[k][m] += f[m];
                }
        }
        const size_t head = static_cast<size_t>(__shfl_sync(~0u, list, 0));
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (j + 256 * k < D) store(rows + head * D + j + 256 * k, pack<T>(sum[k]));
    });
}

enum { PULLERS = 512 /* threads */, TOGETHER = 2 /* rows of a token */ };

template <class T>
static __global__ void __launch_bounds__(PULLERS, 1)
    pull(T *out, peers rows, const int32_t *row_of, const int32_t *ids, int N, int A, int D,
         int n_local) {
    constexpr int AT_ONCE = sizeof(T) == 2 ? 4 : 2, WIDTH = AT_ONCE * 32 * 8;
    const int parts = ceil_div(D, WIDTH), warps = static_cast<int>(gridDim.x) * (PULLERS / 32);
    /* neighbouring warps of a block have the parts of a token, blocks have tokens in turn */
    for (int task = static_cast<int>(blockIdx.x) + static_cast<int>(threadIdx.x / 32 * gridDim.x);
         task < N * parts; task += warps) {
        const int token = task / parts, at = task % parts * WIDTH + lane() * 8;
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
        unsigned left =
            __ballot_sync(~0u, rank >= 0 && (rank == rows.me || lane() == 0 || earlier != rank));
        float sum[AT_ONCE][8] = {}, part[AT_ONCE][8] = {};
        while (left) {
            vec<T, 8> v[TOGETHER][AT_ONCE];
            int which[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
                which[i] = __ffs(left) - 1; /* -1: there is none */
                left &= left - 1;
                const auto address = reinterpret_cast<unsigned long long>(mine);
                const T *from = reinterpret_cast<const T *>(
                    __shfl_sync(~0u, address, which[i] < 0 ? 0 : which[i]));
#pragma unroll
                for (int k = 0; k < AT_ONCE; k++)
                    if (which[i] >= 0 && at + 256 * k < D) v[i][k] = load<8>(from + at + 256 * k);
            }
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
                if (which[i] < 0) continue;
                const bool here = own >> which[i] & 1, last = here && !(own >> which[i] >> 1 & 1);
#pragma unroll
                for (int k = 0; k < AT_ONCE; k++) {
                    if (at + 256 * k >= D) continue;
                    float f[8];
                    unpack(f, v[i][k]);
#pragma unroll
                    for (int m = 0; m < 8; m++) {
                        if (here)
                            part[k][m] += f[m];
                        else
                            sum[k][m] += f[m];
                        /* as it would have been rounded to travel */
                        if (last) sum[k][m] += to_float(from_float<T>(part[k][m]));
                    }
                }
            }
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (at + 256 * k < D)
                store(out + static_cast<size_t>(token) * D + at + 256 * k, pack<T>(sum[k]));
    }
}

enum { VALUES = 256 };

static __global__ void __launch_bounds__(VALUES)
    pull_values(float *out, peers values, const int32_t *row_of, const int32_t *ids, int n,
                int n_local) {
    const int i = static_cast<int>(blockIdx.x) * VALUES + threadIdx.x;
    if (i < n) out[i] = static_cast<const float *>(values.at[ids[i] / n_local])[row_of[i]];
}

extern "C" void peer_push(enum real t, struct peers rows, const int32_t *base, const void *x,
                          const int32_t *row_of, const int32_t *ids, int N, int E, int A, int D,
                          int blocks, cudaStream_t stream) {
    assert(A <= PEER_CHOICES && D % 8 == 0 && aligned16(x));
    if (N == 0) return;
    push<<<blocks, PUSHERS, 0, stream>>>(rows, base, static_cast<const uint4 *>(x), row_of, ids, N,
                                         A, row_units(real_bytes(t), D), E / rows.n);
    check(cudaGetLastError());
}

extern "C" void peer_repeat(enum real t, void *rows, const int32_t *base, const int32_t *chain,
                            const int32_t *offsets, const int32_t *ends, int n_local, int D,
                            cudaStream_t stream) {
    assert(D % 8 == 0);
    repeat<<<LOCAL_BLOCKS, LOCAL, 0, stream>>>(static_cast<uint4 *>(rows), base, chain, offsets,
                                               ends, n_local, row_units(real_bytes(t), D));
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
        pull<<<blocks, PULLERS, 0, stream>>>(static_cast<T *>(out), rows, row_of, ids, N, A, D,
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
