/* Backward pass of flash.h for BF16 on tensor cores, in two kernels that make the probabilities
 * again (Dao 2023, algorithm 2): one block a tile of keys gives dK and dV, one block a tile of
 * queries gives dQ. Seven products instead of five, but each sum stays in one block's registers, in
 * a fixed order and without atomics. With c = 1/sqrt(K), P = exp(c Q K^T - lse), D = rowsum(dO O):
 * dV = P^T dO, dS = P (dO V^T - D), dK = c dS^T Q, dQ = c dS K. */
#include "flash.cuh"

/* The terms of flash.cuh, D = rowsum(dout out); TERM_LANES lanes a row of K. */
enum { TERM_LANES = 16, TERM_THREADS = 256 };

template <typename T>
static __global__ void terms_kernel(float2 *terms, const T *dout, const T *out, const float *lse,
                                    int N, int H, int K) {
    const unsigned row = (blockIdx.x * TERM_THREADS + threadIdx.x) / TERM_LANES;
    const int i = (int)(row / (unsigned)H), h = (int)(row % (unsigned)H),
              padded = attention_padded(N), lane = (int)threadIdx.x % TERM_LANES;
    float sum = 0;
    if (i < N)
        for (int k = 8 * lane; k < K; k += 8 * TERM_LANES) {
            const size_t at = (size_t)row * (size_t)K + (size_t)k;
            float x[8], y[8];
            unpack(x, load<8>(dout + at));
            unpack(y, load<8>(out + at));
            for (int j = 0; j < 8; j++) sum += x[j] * y[j];
        }
    sum = warp_sum(sum, TERM_LANES);
    if (lane == 0)
        terms[(size_t)h * (size_t)padded + (size_t)i] = {i < N ? lse[row] * LOG2_E : 0, sum};
}

template <typename T>
static void make_terms(float2 *terms, const T *dout, const T *out, const float *lse,
                       const attention_problem &p, cudaStream_t stream) {
    const size_t rows = (size_t)p.H * (size_t)attention_padded(p.N);
    assert(rows <= UINT32_MAX / TERM_LANES);
    const unsigned blocks = (unsigned)ceil_div(rows * TERM_LANES, (size_t)TERM_THREADS);
    terms_kernel<<<blocks, TERM_THREADS, 0, stream>>>(terms, dout, out, lse, p.N, p.H, p.K);
    check(cudaGetLastError());
}

/* Transposed scores [16, QUERIES] of the keys from `row` on and the queries from q on: -inf where a
 * query does not see a key. */
template <int QUERIES>
static __device__ __forceinline__ void hide_queries(float (&s)[1][QUERIES / 8][4],
                                                    const attention_problem &p, int row, int q) {
    const int lane = lane_here();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int key = row + 8 * i + lane / 4, past = key < p.N ? past_query(p, key) : 0;
#pragma unroll
        for (int n = 0; n < QUERIES / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int query = q + 8 * n + 2 * (lane % 4) + e;
                if (query < key || query >= past) s[0][n][2 * i + e] = -INFINITY;
            }
    }
}

/* dK and dV of a tile of keys and one of their heads, columns [part OUT, (part + 1) OUT) of W: sums
 * over the query heads that share them and, for each, over the tiles of queries. The products are
 * made transposed (keys x queries), so that each warp's 16 keys need nobody else's. */
template <int W, int OUT, int QUERIES, int WARPS>
static __global__ void __launch_bounds__(32 * WARPS, 2)
    key_kernel(bf16 *dqkv, const bf16 *dout, const float2 *terms, const bf16 *qkv,
               attention_problem p) {
    constexpr int KEYS = 16 * WARPS, THREADS = 32 * WARPS, KEY_BYTES = KEYS * W * 2,
                  QUERY_BYTES = QUERIES * W * 2, PARTS = W / OUT;
    static_assert(KEYS % QUERIES == 0 && 128 % KEYS == 0, "tiles of terms are aligned and padded");
    static_assert(QUERIES / 2 <= THREADS, "one copy a thread brings the terms");
    extern __shared__ __align__(128) unsigned char shared[];
    const uint32_t keys = shared_address(shared), values = keys + KEY_BYTES,
                   queries = values + KEY_BYTES, douts = queries + 2 * QUERY_BYTES,
                   query_terms = douts + 2 * QUERY_BYTES;
    const int warp = (int)threadIdx.x / 32;
    /* the first keys are seen by the most queries: they start first */
    const int part = (int)blockIdx.x % PARTS, g = (int)blockIdx.x / PARTS % p.G,
              k0 = (int)blockIdx.x / (PARTS * p.G) * KEYS, k1 = min(k0 + KEYS, p.N);
    const int stride = (p.H + 2 * p.G) * p.K, out_stride = p.H * p.K, heads = p.H / p.G,
              padded = attention_padded(p.N), past = past_query(p, k1 - 1);
    auto load = [&](int stage, int h, int q0) {
        tile_load<W, QUERIES, THREADS>(queries + stage * QUERY_BYTES,
                                       qkv + (size_t)q0 * (size_t)stride + h * p.K, stride,
                                       p.N - q0, p.K);
        tile_load<W, QUERIES, THREADS>(douts + stage * QUERY_BYTES,
                                       dout + (size_t)q0 * (size_t)out_stride + h * p.K, out_stride,
                                       p.N - q0, p.K);
        const int at = 2 * (int)threadIdx.x;
        if (at < QUERIES)
            copy16_async(query_terms + 8 * (stage * QUERIES + at),
                         terms + (size_t)h * (size_t)padded + (size_t)(q0 + at), false);
    };

    /* the warp's keys [row, last], and where the queries of the first and of the last of them end
     */
    const int row = k0 + 16 * warp, last = min(row + 15, p.N - 1);
    const int least = row < p.N ? past_query(p, row) : 0,
              greatest = row < p.N ? past_query(p, last) : 0;
    float dk[1][OUT / 8][4], dv[1][OUT / 8][4];
#pragma unroll
    for (int n = 0; n < OUT / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) dk[0][n][e] = dv[0][n][e] = 0;

    const bf16 *k = qkv + (size_t)k0 * (size_t)stride + (p.H + g) * p.K;
    tile_load<W, KEYS, THREADS>(keys, k, stride, p.N - k0, p.K);
    tile_load<W, KEYS, THREADS>(values, k + p.G * p.K, stride, p.N - k0, p.K);
    int stage = 0, h = g * heads, q0 = k0;
    load(stage, h, q0);
    while (h < (g + 1) * heads) {
        const bool ends = q0 + QUERIES >= past;
        const int q = q0, next_h = ends ? h + 1 : h;
        q0 = ends ? k0 : q0 + QUERIES;
        h = next_h;
        wait_copies();
        __syncthreads(); /* this stage is here, and nobody reads the other one any more */
        const int now = stage;
        stage ^= 1;
        if (h < (g + 1) * heads) load(stage, h, q0);
        if (q + QUERIES <= row || q >= greatest) continue;
        /* two queries' terms a float4 */
        const float4 *pairs =
            reinterpret_cast<const float4 *>(shared + 2 * KEY_BYTES + 4 * QUERY_BYTES) +
            now * QUERIES / 2 + lane_here() % 4;
        float s[1][QUERIES / 8][4], ds[1][QUERIES / 8][4];
        multiply_tiles<W, 1, QUERIES>(s, keys, 16 * warp, queries + now * QUERY_BYTES);
        if (row + 15 > q || least < q + QUERIES) hide_queries<QUERIES>(s, p, row, q);
        multiply_tiles<W, 1, QUERIES>(ds, values, 16 * warp, douts + now * QUERY_BYTES);
#pragma unroll
        for (int n = 0; n < QUERIES / 8; n++) {
            const float4 pair = pairs[4 * n];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float lse = e % 2 ? pair.z : pair.x, d = e % 2 ? pair.w : pair.y,
                            x = exp2_fast(s[0][n][e] * (p.scale * LOG2_E) - lse);
                s[0][n][e] = x;
                ds[0][n][e] = x * (ds[0][n][e] - d);
            }
        }
        uint32_t x[1][QUERIES / 16][4];
        pack_tiles<1, QUERIES>(x, s);
        multiply_add_tile<W, 1, QUERIES, OUT>(dv, x, douts + now * QUERY_BYTES, part * OUT);
        pack_tiles<1, QUERIES>(x, ds);
        multiply_add_tile<W, 1, QUERIES, OUT>(dk, x, queries + now * QUERY_BYTES, part * OUT);
    }

    /* other warps may still multiply, but only by rows of their own */
    bf16 *to = dqkv + (size_t)row * (size_t)stride + (p.H + g) * p.K + part * OUT;
    unsigned char *own = shared + warp * 16 * W * 2;
    store_tile<W, 1, OUT>(to, stride, p.N - row, p.K - part * OUT, dk, p.scale, own);
    store_tile<W, 1, OUT>(to + p.G * p.K, stride, p.N - row, p.K - part * OUT, dv, 1,
                          own + KEY_BYTES);
}

/* dQ of a tile of queries and one head: the loop of the forward pass */
template <int W, int TILES, int KEYS, int WARPS>
static __global__ void __launch_bounds__(32 * WARPS, 2)
    query_kernel(bf16 *dqkv, const bf16 *dout, const float2 *terms, const bf16 *qkv,
                 attention_problem p) {
    constexpr int ROWS = 16 * TILES, QUERIES = ROWS * WARPS, THREADS = 32 * WARPS,
                  KEY_BYTES = KEYS * W * 2, QUERY_BYTES = QUERIES * W * 2;
    static_assert(128 % QUERIES == 0, "tiles of terms are padded");
    extern __shared__ __align__(128) unsigned char shared[];
    const uint32_t queries = shared_address(shared), douts = queries + QUERY_BYTES,
                   keys = douts + QUERY_BYTES, values = keys + 2 * KEY_BYTES;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int n_tiles = ceil_div(p.N, QUERIES), h = (int)blockIdx.x % p.H,
              q0 = (n_tiles - 1 - (int)blockIdx.x / p.H) * QUERIES, q1 = min(q0 + QUERIES, p.N);
    const int stride = (p.H + 2 * p.G) * p.K, out_stride = p.H * p.K, g = h / (p.H / p.G);
    const bf16 *k = qkv + (p.H + g) * p.K, *v = k + p.G * p.K;
    auto load = [&](int stage, int k0) {
        const size_t at = (size_t)k0 * (size_t)stride;
        tile_load<W, KEYS, THREADS>(keys + stage * KEY_BYTES, k + at, stride, p.N - k0, p.K);
        tile_load<W, KEYS, THREADS>(values + stage * KEY_BYTES, v + at, stride, p.N - k0, p.K);
    };

    const int row = q0 + warp * ROWS, past = min(row + ROWS, p.N);
    const int least = row < past ? first_key(p, row) : 0,
              greatest = row < past ? first_key(p, past - 1) : 0;
    const float2 *row_terms =
        terms + (size_t)h * (size_t)attention_padded(p.N) + (size_t)(row + lane / 4);
    float dq[TILES][W / 8][4];
#pragma unroll
    for (int m = 0; m < TILES; m++)
#pragma unroll
        for (int n = 0; n < W / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) dq[m][n][e] = 0;

    tile_load<W, QUERIES, THREADS>(queries, qkv + (size_t)q0 * (size_t)stride + h * p.K, stride,
                                   p.N - q0, p.K);
    tile_load<W, QUERIES, THREADS>(douts, dout + (size_t)q0 * (size_t)out_stride + h * p.K,
                                   out_stride, p.N - q0, p.K);
    int stage = 0, k0 = first_key(p, q0);
    load(stage, k0);
    for (; k0 < q1; k0 += KEYS, stage ^= 1) {
        wait_copies();
        __syncthreads(); /* this stage is here, and nobody reads the other one any more */
        if (k0 + KEYS < q1) load(stage ^ 1, k0 + KEYS);
        if (k0 >= past || k0 + KEYS <= least) continue;
        float s[TILES][KEYS / 8][4], ds[TILES][KEYS / 8][4];
        multiply_tiles<W, TILES, KEYS>(s, queries, warp * ROWS, keys + stage * KEY_BYTES);
        if (k0 + KEYS - 1 > row || k0 < greatest) hide_keys<TILES, KEYS>(s, p, row, k0);
        multiply_tiles<W, TILES, KEYS>(ds, douts, warp * ROWS, values + stage * KEY_BYTES);
#pragma unroll
        for (int m = 0; m < TILES; m++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float2 term = row_terms[16 * m + 8 * i]; /* from L1: no registers left */
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                    for (int e = 2 * i; e < 2 * i + 2; e++) {
                        const float x = exp2_fast(s[m][n][e] * (p.scale * LOG2_E) - term.x);
                        ds[m][n][e] = x * (ds[m][n][e] - term.y);
                    }
            }
        uint32_t x[TILES][KEYS / 16][4];
        pack_tiles<TILES, KEYS>(x, ds);
        multiply_add_tile<W, TILES, KEYS, W>(dq, x, keys + stage * KEY_BYTES, 0);
    }
    store_tile<W, TILES, W>(dqkv + (size_t)row * (size_t)stride + h * p.K, stride, p.N - row, p.K,
                            dq, p.scale, shared + warp * ROWS * W * 2);
}

template <int W, int OUT, int QUERIES, int WARPS>
static void key_gradients(bf16 *dqkv, const bf16 *dout, const float2 *terms, const bf16 *qkv,
                          attention_problem p, cudaStream_t stream) {
    constexpr int KEYS = 16 * WARPS, SHARED = (2 * KEYS + 4 * QUERIES) * W * 2 + 2 * QUERIES * 8;
    launch(key_kernel<W, OUT, QUERIES, WARPS>, ceil_div(p.N, KEYS) * p.G * (W / OUT), 32 * WARPS,
           SHARED, stream, dqkv, dout, terms, qkv, p);
}

template <int W, int TILES, int KEYS, int WARPS>
static void query_gradients(bf16 *dqkv, const bf16 *dout, const float2 *terms, const bf16 *qkv,
                            attention_problem p, cudaStream_t stream) {
    constexpr int QUERIES = 16 * TILES * WARPS, SHARED = (2 * QUERIES + 4 * KEYS) * W * 2;
    launch(query_kernel<W, TILES, KEYS, WARPS>, ceil_div(p.N, QUERIES) * p.H, 32 * WARPS, SHARED,
           stream, dqkv, dout, terms, qkv, p);
}

void flash_backward(enum real t, void *dqkv, const void *dout, const void *out, const float *lse,
                    const void *qkv, const int32_t *begin, const int32_t *end, void *scratch, int N,
                    struct flash_sizes s, cudaStream_t stream) {
    const attention_problem p = attention_problem_of(begin, end, N, s);
    float2 *terms = (float2 *)scratch;
    assert(aligned16(dqkv) && aligned16(dout) && aligned16(out) && aligned16(qkv) &&
           aligned16(scratch));
    if (N == 0) return;
    if (t == REAL_FP32) {
        make_terms(terms, (const float *)dout, (const float *)out, lse, p, stream);
        return flash_plain_backward((float *)dqkv, (const float *)dout, terms, (const float *)qkv,
                                    p, stream);
    }
    const bf16 *dy = (const bf16 *)dout, *x = (const bf16 *)qkv;
    bf16 *dx = (bf16 *)dqkv;
    make_terms(terms, dy, (const bf16 *)out, lse, p, stream);
    /* tile sizes: at most 99 KiB of shared memory a block, what sm_86 and sm_89 have */
    if (s.K <= 64) {
        key_gradients<64, 64, 64, 4>(dx, dy, terms, x, p, stream);
        query_gradients<64, 2, 32, 4>(dx, dy, terms, x, p, stream);
    } else if (s.K <= 128) {
        key_gradients<128, 128, 64, 4>(dx, dy, terms, x, p, stream);
        query_gradients<128, 2, 32, 4>(dx, dy, terms, x, p, stream);
    } else {
        key_gradients<256, 128, 16, 4>(dx, dy, terms, x, p, stream);
        query_gradients<256, 1, 16, 4>(dx, dy, terms, x, p, stream);
    }
}
