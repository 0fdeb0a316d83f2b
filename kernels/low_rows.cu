/* A warp a token, which is read and rounded once, whatever A. */
#include "low_rows.h"
#include "low_rows.cuh"
#include "permute.h"
#include <type_traits>

namespace {

enum { WARPS = 4 };

/* Bytes of a row of D. */
template <class T> __device__ size_t pitch(const T *, int D) {
    return static_cast<size_t>(D) * sizeof(T);
}

__device__ size_t pitch(const char *, int D) {
    return low_row_bytes(D);
}

template <class T> __device__ T *row_at(T *rows, size_t row, int D) {
    using bytes = std::conditional_t<std::is_const_v<T>, const char, char>;
    return reinterpret_cast<T *>(reinterpret_cast<bytes *>(rows) + row * pitch(rows, D));
}

/* FROM, TO: the compute type, or char for rows in eight bits. */
template <class FROM, class TO>
__global__ void __launch_bounds__(32 * WARPS) spread(TO *rows, const int32_t *base, const FROM *x,
                                                     const int32_t *row_of, int N, int A, int D) {
    const int token = static_cast<int>(blockIdx.x) * WARPS + threadIdx.x / 32;
    if (token >= N) return;
    if (base) rows = row_at(rows, *base, D);
    x = row_at(x, token, D), row_of += static_cast<size_t>(token) * A;
    for (int first = 0; first < D; first += LOW_TURN) {
        low_piece p[LOW_STEPS];
        low_turn(p, x, first, D);
        for (int a = 0; a < A; a++)
            if (row_of[a] >= 0) low_store(row_at(rows, row_of[a], D), p, first, D);
    }
}

template <class FROM, class TO>
void launch(TO *rows, const int32_t *base, const FROM *x, const int32_t *row_of, int N, int A,
            int D, cudaStream_t stream) {
    assert(D % 8 == 0 && aligned16(rows) && aligned16(x));
    if (N == 0) return;
    spread<<<ceil_div(N, +WARPS), 32 * WARPS, 0, stream>>>(rows, base, x, row_of, N, A, D);
    check(cudaGetLastError());
}

} // namespace

void low_rows_pack(enum real t, void *copies, const void *x, const int32_t *copy_of, int N, int A,
                   int D, cudaStream_t stream) {
    for_type(t, [&](auto zero) {
        launch(static_cast<char *>(copies), nullptr, static_cast<const decltype(zero) *>(x),
               copy_of, N, A, D, stream);
    });
}

void low_rows_spread(enum real t, void *rows, const int32_t *base, const void *arrivals,
                     const int32_t *row_of, const int32_t *offsets, const int32_t *ends, int N,
                     int E, int A, int D, cudaStream_t stream) {
    permute_spread(t, rows, base, arrivals, row_of, offsets, ends, /*N=*/0, E, A, D, stream);
    for_type(t, [&](auto zero) {
        launch(static_cast<decltype(zero) *>(rows), base, static_cast<const char *>(arrivals),
               row_of, N, A, D, stream);
    });
}

void low_rows_round(enum real t, void *rows, const void *x, const int32_t *row_of,
                    const int32_t *offsets, const int32_t *ends, int N, int E, int A, int D,
                    cudaStream_t stream) {
    permute_spread(t, rows, /*base=*/nullptr, x, row_of, offsets, ends, /*N=*/0, E, A, D, stream);
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        launch(static_cast<T *>(rows), nullptr, static_cast<const T *>(x), row_of, N, A, D, stream);
    });
}
