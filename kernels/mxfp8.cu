/* A warp takes 32 x 32 elements, a lane one column of them. */
#include "mxfp8.h"
#include "mxfp8.cuh"
#include "vector.cuh"

namespace {

enum { SIDE = MXFP8_BLOCK, WARPS = 4 };

/* The larger magnitude; a NaN is above all. */
__device__ float larger(float a, float b) {
    return __uint_as_float(max(__float_as_uint(a) & 0x7fffffffu, __float_as_uint(b) & 0x7fffffffu));
}

template <bool DOWN>
__global__ void __launch_bounds__(32 * WARPS)
    round_blocks(bf16 *out, const bf16 *x, const mxfp8_rows r, int cols) {
    const int lane = threadIdx.x % 32, end = r.last ? *r.last : r.rows,
              first = (blockIdx.y * WARPS + threadIdx.x / 32) * SIDE, n = min(end - first, +SIDE);
    if (n <= 0) return;
    const size_t at = static_cast<size_t>(first) * cols + blockIdx.x * SIDE + lane;
    x += static_cast<size_t>(r.from ? *r.from : 0) * cols + at;
    out += static_cast<size_t>(r.to ? *r.to : 0) * cols + at;
    float v[SIDE], most = 0;
#pragma unroll
    for (int i = 0; i < SIDE; i++)
        v[i] = i < n ? __bfloat162float(x[static_cast<size_t>(i) * cols]) : 0;
    if (DOWN) {
#pragma unroll
        for (int i = 0; i < SIDE; i++) most = larger(most, v[i]);
    }
    mxfp8_scale s = mxfp8_scale_of(most);
#pragma unroll
    for (int i = 0; i < SIDE; i++) {
        if (i >= n) break;
        if (!DOWN) {
            float row = fabsf(v[i]);
            for (int step = 1; step < 32; step *= 2)
                row = larger(row, __shfl_xor_sync(~0u, row, step));
            s = mxfp8_scale_of(row);
        }
        out[static_cast<size_t>(i) * cols] =
            __float2bfloat16_rn(e4m3(__fmul_rn(v[i], s.inverse)) * s.scale);
    }
}

} // namespace

void mxfp8_round(void *out, const void *x, enum mxfp8_blocks blocks, struct mxfp8_rows r, int cols,
                 cudaStream_t stream) {
    assert(cols % SIDE == 0);
    if (r.rows == 0 || cols == 0) return;
    const dim3 grid(cols / SIDE, ceil_div(r.rows, SIDE * WARPS));
    auto *kernel = blocks == MXFP8_DOWN_COLUMNS ? round_blocks<true> : round_blocks<false>;
    kernel<<<grid, 32 * WARPS, 0, stream>>>(static_cast<bf16 *>(out), static_cast<const bf16 *>(x),
                                            r, cols);
    check(cudaGetLastError());
}
