/* Embedding: rows copied by token, and their gradients added up by token. */
#include "embed.h"
#include "access.cuh"
#include "sort.cuh"

enum { COPY_THREADS = 256, SUM_THREADS = 128 };

/* A warp copies a row of `units`. */
template <class Unit>
static __global__ void __launch_bounds__(COPY_THREADS)
    copy_rows(Unit *__restrict__ x, const Unit *__restrict__ table,
              const int32_t *__restrict__ tokens, int N, int units) {
    int i = (blockIdx.x * COPY_THREADS + threadIdx.x) / 32;
    if (i >= N) return;
    const Unit *from = table + static_cast<size_t>(tokens[i]) * units;
    Unit *to = x + static_cast<size_t>(i) * units;
#pragma unroll 4
    for (int j = threadIdx.x % 32; j < units; j += 32) to[j] = from[j];
}

template <class Unit>
static void copy(void *x, const void *table, const int32_t *tokens, int N, size_t row_bytes,
                 cudaStream_t stream) {
    copy_rows<<<ceil_div(N, COPY_THREADS / 32), COPY_THREADS, 0, stream>>>(
        static_cast<Unit *>(x), static_cast<const Unit *>(table), tokens, N,
        static_cast<int>(row_bytes / sizeof(Unit)));
    check(cudaGetLastError());
}

extern "C" void embed_forward(enum real t, void *x, const void *table, const int32_t *tokens, int N,
                              int D, cudaStream_t stream) {
    size_t row_bytes = D * real_bytes(t);
    if (N == 0) return;
    if (row_bytes % sizeof(uint4) == 0 && aligned16(x) && aligned16(table))
        copy<uint4>(x, table, tokens, N, row_bytes, stream);
    else
        copy<uint16_t>(x, table, tokens, N, row_bytes, stream);
}

/* A pass of the radix sort of the places by their tokens. */
struct by_token {
    const int32_t *tokens, *from; /* from NULL: 0, 1, 2, ... */
    int32_t *order, *sorted;      /* the places sorted by token, and the token of each */
    int shift;

    __device__ int place_of(int i) const { return from ? from[i] : i; }

    __device__ int key(int i) const { return tokens[place_of(i)] >> shift & (SORT_KEYS - 1); }

    __device__ void place(int i, int to) const {
        int at = place_of(i);
        order[to] = at;
        sorted[to] = tokens[at];
    }
};

/* The sorted places are cut into chunks of equal height. A run of one token that lies within a
 * chunk is added to the table at once. Of one that crosses edges, each chunk leaves its part:
 * `tail` where the run begins, `head` where it goes on; then the parts are added up. heads, tails
 * [chunks, D]. */
struct parts {
    float *heads, *tails;
};

template <class T, int W>
static __global__ void __launch_bounds__(SUM_THREADS)
    sum_runs(float *dtable, struct parts parts, const T *__restrict__ dx,
             const int32_t *__restrict__ order, const int32_t *__restrict__ sorted, int chunk,
             int N, int D) {
    const int AHEAD = 8; /* rows in flight */
    int column = (blockIdx.x * SUM_THREADS + threadIdx.x) * W;
    int first = blockIdx.y * chunk, last = min(N, first + chunk);
    if (column >= D) return;
    size_t part = static_cast<size_t>(blockIdx.y) * D + column;
    int token = sorted[first];
    bool begun = first > 0 && sorted[first - 1] == token;
    float sum[W] = {};
    auto add_to_table = [&] {
        float *to = dtable + static_cast<size_t>(token) * D + column, old[W];
        read_run(old, to);
        for (int j = 0; j < W; j++) old[j] += sum[j];
        write_run(to, old);
    };
    for (int r = first; r < last; r += AHEAD) {
        float row[AHEAD][W];
        int of[AHEAD], at[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) { /* past the end the last row again, unused */
            of[u] = sorted[min(r + u, last - 1)];
            at[u] = order[min(r + u, last - 1)];
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            read_run(row[u], dx + static_cast<size_t>(at[u]) * D + column);
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (r + u < last) {
                if (of[u] != token) {
                    if (begun)
                        write_run(parts.heads + part, sum);
                    else
                        add_to_table();
                    token = of[u], begun = false;
                    for (int j = 0; j < W; j++) sum[j] = 0;
                }
                for (int j = 0; j < W; j++) sum[j] += row[u][j];
            }
    }
    if (begun)
        write_run(parts.heads + part, sum);
    else if (last < N && sorted[last] == token)
        write_run(parts.tails + part, sum);
    else
        add_to_table();
}

/* One column a thread; block y adds up the run that begins in chunk y and goes on in the next. */
static __global__ void __launch_bounds__(SUM_THREADS)
    join_runs(float *dtable, struct parts parts, const int32_t *__restrict__ sorted, int chunk,
              int N, int D) {
    int column = blockIdx.x * SUM_THREADS + threadIdx.x, c = blockIdx.y;
    int first = c * chunk, end = first + chunk; /* end < N: there is a next chunk */
    int token = sorted[end - 1], more = 0;
    if (sorted[end] != token || (c > 0 && sorted[first - 1] == token)) return;
    for (int k = c + 1; k < c + 1 + EMBED_CHUNKS; k += SUM_THREADS) {
        int next = (k + threadIdx.x) * chunk;
        more += __syncthreads_count(next < N && sorted[next] == token);
    }
    if (column >= D) return;
    const float *head = parts.heads + (static_cast<size_t>(c) + 1) * D + column;
    float sum = parts.tails[static_cast<size_t>(c) * D + column];
#pragma unroll 16
    for (int k = 0; k < more; k++) sum += head[static_cast<size_t>(k) * D];
    dtable[static_cast<size_t>(token) * D + column] += sum;
}

/* Only as many passes as tokens below V have bytes. Returns the sorted places. */
static const int32_t *sort_tokens(const int32_t *tokens, int32_t *sorted, char *scratch,
                                  struct embed_space s, int N, int V, cudaStream_t stream) {
    int32_t *order = nullptr;
    int pass = 0;
    for (int shift = 0; shift == 0 || (shift < 32 && (V - 1) >> shift > 0); shift += 8) {
        struct by_token places = {tokens, order, nullptr, sorted, shift};
        int keys = ((V - 1) >> shift) + 1;
        places.order = order = reinterpret_cast<int32_t *>(scratch + s.order[pass++ % 2]);
        sort(places, sort_places{nullptr, nullptr, 1}, scratch + s.counts, N,
             keys < SORT_KEYS ? keys : SORT_KEYS, stream);
    }
    return order;
}

extern "C" void embed_backward(enum real t, float *dtable, const void *dx, const int32_t *tokens,
                               void *scratch, int N, int D, int V, cudaStream_t stream) {
    if (N == 0) return;
    struct embed_space s = embed_space_of(N, D);
    char *base = static_cast<char *>(scratch);
    int32_t *sorted = reinterpret_cast<int32_t *>(base + s.sorted);
    struct parts parts = {reinterpret_cast<float *>(base + s.heads),
                          reinterpret_cast<float *>(base + s.tails)};
    const int32_t *order = sort_tokens(tokens, sorted, base, s, N, V, stream);
    int chunk = embed_chunk(N), chunks = ceil_div(N, chunk);
    bool wide = D % 8 == 0 && aligned16(dx) && aligned16(dtable);
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        auto kernel = wide ? sum_runs<T, 8> : sum_runs<T, 1>;
        dim3 grid(ceil_div(D, SUM_THREADS * (wide ? 8 : 1)), chunks);
        kernel<<<grid, SUM_THREADS, 0, stream>>>(dtable, parts, static_cast<const T *>(dx), order,
                                                 sorted, chunk, N, D);
        check(cudaGetLastError());
    });
    if (chunks == 1) return;
    join_runs<<<dim3(ceil_div(D, SUM_THREADS), chunks - 1), SUM_THREADS, 0, stream>>>(
        dtable, parts, sorted, chunk, N, D);
    check(cudaGetLastError());
}
