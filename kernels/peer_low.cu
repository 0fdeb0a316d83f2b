/* Rows in eight bits between ranks: a warp a row, on both sides. A row on its way lies at the end
 * of the row that it becomes. The rank that gets it writes that from the front on: behind column j
 * it has read the codes as far as j, and of a row of D numbers of b bytes those of the columns from
 * j on begin at byte b D - D + j, which is not before b j. */
#include "low_rows.cuh"
#include "peer_move.cuh"
#include "peer_move.h"
#include "peer_rows.h"

enum { MOST_D = 16384 };

/* Of a row its part that travels. */
template <class T> static __device__ __forceinline__ char *travelling(T *row, int D) {
    return reinterpret_cast<char *>(row + D) - low_row_bytes(D);
}

template <class T>
static __global__ void __launch_bounds__(PUSHERS, 1)
    push(peers rows, const int32_t *base, const T *x, const int32_t *row_of, const int32_t *ids,
         int N, int A, int D, int n_local) {
    for (int token = first_warp(); token < N; token += n_warps()) {
        bool own;
        T *mine = pushed_to<T>(own, rows, base, row_of, ids, token, A, D, n_local);
        const unsigned wanted = __ballot_sync(~0u, mine != nullptr), here = __ballot_sync(~0u, own);
        const auto address = reinterpret_cast<unsigned long long>(mine);
        for (int first = 0; first < D; first += LOW_TURN) {
            low_piece p[LOW_STEPS];
            low_turn(p, x + static_cast<size_t>(token) * D, first, D);
            for (unsigned left = wanted; left; left &= left - 1) {
                const int which = __ffs(left) - 1;
                T *to = reinterpret_cast<T *>(__shfl_sync(~0u, address, which));
                if (here >> which & 1)
                    low_store(to, p, first, D);
                else
                    low_store(travelling(to, D), p, first, D);
            }
        }
    }
}

template <class T>
static __global__ void __launch_bounds__(LOCAL, 4)
    repeat(T *rows, const int32_t *base, const int32_t *chain, const int32_t *offsets,
           const int32_t *ends, int n_local, int D) {
    enum { WARPS = LOCAL / 32 };
    __shared__ float scales[WARPS][MOST_D / LOW_ROW_BLOCK];
    float *const own = scales[threadIdx.x / 32];
    if (base) rows += static_cast<size_t>(*base) * D;
    zero_pads(reinterpret_cast<uint4 *>(rows), offsets, ends, n_local, row_units(sizeof(T), D));
    for (int row = static_cast<int>(blockIdx.x) * WARPS + threadIdx.x / 32; row < offsets[n_local];
         row += LOCAL_BLOCKS * WARPS) {
        const int next = chain[row];
        if (next <= 0 && next != PEER_LONE) continue;
        int length;
        const int list = chain_list(length, chain, row, next);
        const char *from = travelling(rows + static_cast<size_t>(row) * D, D);
        const char *const codes = from + low_row_scales(D);
        __syncwarp(); /* the last row's scales have been read */
        for (int k = lane(); k < ceil_div(D, +LOW_ROW_BLOCK); k += 32)
            own[k] = reinterpret_cast<const float *>(from)[k];
        __syncwarp();
        for (int first = 0; first < D; first += LOW_TURN) {
            low_piece p[LOW_STEPS];
#pragma unroll
            for (int k = 0; k < LOW_STEPS; k++) {
                const int j = first + k * LOW_STEP + lane() * LOW_LANE;
                if (j >= D) continue;
                p[k].codes = *reinterpret_cast<const uint2 *>(codes + j);
                p[k].scale = own[j / LOW_ROW_BLOCK];
            }
            __syncwarp(); /* all have read, before it is written over */
            for (int i = 0; i < length; i++)
                low_store(rows + static_cast<size_t>(__shfl_sync(~0u, list, i)) * D, p, first, D);
        }
    }
}

extern "C" void peer_push_low(enum real t, struct peers rows, const int32_t *base, const void *x,
                              const int32_t *row_of, const int32_t *ids, int N, int E, int A, int D,
                              int blocks, cudaStream_t stream) {
    assert(A <= PEER_CHOICES && D % 8 == 0 && aligned16(x));
    if (N == 0) return;
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        push<<<blocks, PUSHERS, 0, stream>>>(rows, base, static_cast<const T *>(x), row_of, ids, N,
                                             A, D, E / rows.n);
    });
    check(cudaGetLastError());
}

extern "C" void peer_repeat_low(enum real t, void *rows, const int32_t *base, const int32_t *chain,
                                const int32_t *offsets, const int32_t *ends, int n_local, int D,
                                cudaStream_t stream) {
    assert(D % 8 == 0 && D <= MOST_D);
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        repeat<<<LOCAL_BLOCKS, LOCAL, 0, stream>>>(static_cast<T *>(rows), base, chain, offsets,
                                                   ends, n_local, D);
    });
    check(cudaGetLastError());
}
