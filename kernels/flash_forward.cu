/* Forward pass of flash.h for BF16 on tensor cores: one block a tile of queries and a head
 * (Dao 2023, algorithm 1). Each warp owns 16 TILES queries; scores and probabilities stay in its
 * registers, keys and values come through two stages of shared memory. */
#include "flash.cuh"

/* The reference m of exp(s - m) moves only when a score passes it by this much (in powers of two):
 * probabilities stay below 2^8, and most tiles leave sums and outputs unscaled. */
static constexpr float LAG = 8;

/* The running softmax of one warp: `most` the reference in units of the unscaled score, `sum` this
 * lane's part of the denominator, per row of the lane. */
template <int TILES> struct softmax { float most[TILES][2], sum[TILES][2]; };

/* scores to probabilities relative to r.most, which moves, and with it r.sum and out, when it must;
 * c: scale log2 e */
template <int TILES, int KEYS, int W>
static __device__ __forceinline__ void soften(float (&s)[TILES][KEYS / 8][4], softmax<TILES> &r,
                                              float (&out)[TILES][W / 8][4], float c) {
    float most[TILES][2];
    bool moves = false;
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float x = r.most[m][i];
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
                x = fmaxf(x, fmaxf(s[m][n][2 * i], s[m][n][2 * i + 1]));
            x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
            x = fmaxf(x, __shfl_xor_sync(~0u, x, 2));
            most[m][i] = x;
            moves |= (x - r.most[m][i]) * c > LAG; /* false for -inf - -inf */
        }
    if (__any_sync(~0u, moves)) {
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float x = r.most[m][i],
                            factor = x == most[m][i] ? 1 : exp2_fast((x - most[m][i]) * c);
                r.most[m][i] = most[m][i];
                r.sum[m][i] *= factor;
#pragma unroll
                for (int n = 0; n < W / 8; n++) {
                    out[m][n][2 * i] *= factor;
                    out[m][n][2 * i + 1] *= factor;
                }
            }
    }
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            /* a row that has seen no key yet: all its scores are -inf */
            const float shift = r.most[m][i] == -INFINITY ? 0 : r.most[m][i] * c;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) {
                    s[m][n][e] = exp2_fast(s[m][n][e] * c - shift);
                    r.sum[m][i] += s[m][n][e];
                }
        }
}

template <int W, int TILES, int KEYS, int WARPS>
static __global__ void __launch_bounds__(32 * WARPS, 2)
    forward_kernel(bf16 *out, float *lse, const bf16 *qkv, attention_problem p) {
    constexpr int ROWS = 16 * TILES, QUERIES = ROWS * WARPS, KEY_BYTES = KEYS * W * 2;
    extern __shared__ __align__(128) unsigned char shared[];
    const uint32_t queries = shared_address(shared), keys = queries + QUERIES * W * 2,
                   values = keys + 2 * KEY_BYTES;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    /* the last queries have the most keys: they start first */
    const int n_tiles = ceil_div(p.N, QUERIES), h = (int)blockIdx.x % p.H,
              q0 = (n_tiles - 1 - (int)blockIdx.x / p.H) * QUERIES, q1 = min(q0 + QUERIES, p.N);
    const int stride = (p.H + 2 * p.G) * p.K, g = h / (p.H / p.G);
    const bf16 *k = qkv + (p.H + g) * p.K, *v = k + p.G * p.K;
    auto load = [&](int stage, int k0) {
        const size_t at = (size_t)k0 * (size_t)stride;
        tile_load<W, KEYS, 32 * WARPS>(keys + stage * KEY_BYTES, k + at, stride, p.N - k0, p.K);
        tile_load<W, KEYS, 32 * WARPS>(values + stage * KEY_BYTES, v + at, stride, p.N - k0, p.K);
    };

    /* the warp's queries [row, past), and the first keys that the first and the last of them see */
    const int row = q0 + warp * ROWS, past = min(row + ROWS, p.N);
    const int least = row < past ? first_key(p, row) : 0,
              greatest = row < past ? first_key(p, past - 1) : 0;
    softmax<TILES> r;
    float o[TILES][W / 8][4];
#pragma unroll
    for (int m = 0; m < TILES; m++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            r.most[m][i] = -INFINITY;
            r.sum[m][i] = 0;
        }
#pragma unroll
        for (int n = 0; n < W / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) o[m][n][e] = 0;
    }

    tile_load<W, QUERIES, 32 * WARPS>(queries, qkv + (size_t)q0 * (size_t)stride + h * p.K, stride,
                                      p.N - q0, p.K);
    int stage = 0, k0 = first_key(p, q0);
    load(stage, k0);
    for (; k0 < q1; k0 += KEYS, stage ^= 1) {
        wait_copies();
        __syncthreads(); /* this stage is here, and nobody reads the other one any more */
        if (k0 + KEYS < q1) load(stage ^ 1, k0 + KEYS);
        if (k0 >= past || k0 + KEYS <= least) continue;
        float s[TILES][KEYS / 8][4];
        multiply_tiles<W, TILES, KEYS>(s, queries, warp * ROWS, keys + stage * KEY_BYTES);
        if (k0 + KEYS - 1 > row || k0 < greatest) hide_keys<TILES, KEYS>(s, p, row, k0);
        soften<TILES, KEYS, W>(s, r, o, p.scale * LOG2_E);
        uint32_t x[TILES][KEYS / 16][4];
        pack_tiles<TILES, KEYS>(x, s);
        multiply_add_tile<W, TILES, KEYS, W>(o, x, values + stage * KEY_BYTES, 0);
    }

#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float sum = r.sum[m][i];
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            const int query = row + 16 * m + 8 * i + lane / 4;
            if (lane % 4 == 0 && query < p.N)
                lse[(size_t)query * (size_t)p.H + (size_t)h] = r.most[m][i] * p.scale + logf(sum);
            const float inverse = 1 / sum;
#pragma unroll
            for (int n = 0; n < W / 8; n++) {
                o[m][n][2 * i] *= inverse;
                o[m][n][2 * i + 1] *= inverse;
            }
        }
    store_tile<W, TILES, W>(out + (size_t)row * (size_t)(p.H * p.K) + h * p.K, p.H * p.K, p.N - row,
                            p.K, o, 1, shared + warp * ROWS * W * 2);
}

template <int W, int TILES, int KEYS, int WARPS>
static void forward(bf16 *out, float *lse, const bf16 *qkv, attention_problem p,
                    cudaStream_t stream) {
    constexpr int QUERIES = 16 * TILES * WARPS;
    launch(forward_kernel<W, TILES, KEYS, WARPS>, ceil_div(p.N, QUERIES) * p.H, 32 * WARPS,
           (QUERIES + 4 * KEYS) * W * 2, stream, out, lse, qkv, p);
}

void flash_forward(enum real t, void *out, float *lse, const void *qkv, const int32_t *begin,
                   const int32_t *end, int N, struct flash_sizes s, cudaStream_t stream) {
    const attention_problem p = attention_problem_of(begin, end, N, s);
    assert(aligned16(out) && aligned16(qkv));
    if (N == 0) return;
    if (t == REAL_FP32)
        return flash_plain_forward((float *)out, lse, (const float *)qkv, p, stream);
    bf16 *y = (bf16 *)out;
    const bf16 *x = (const bf16 *)qkv;
    if (s.K <= 64)
        forward<64, 2, 64, 4>(y, lse, x, p, stream);
    else if (s.K <= 128)
        forward<128, 2, 32, 4>(y, lse, x, p, stream);
    else
        forward<256, 1, 32, 4>(y, lse, x, p, stream);
}
