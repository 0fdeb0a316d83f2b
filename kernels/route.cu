/* W lanes work on a token, each with K of its experts: lane + W k. Sums over the tokens are kept in
 * FP64 registers, added up by block into columns of scratch, one row a block, and then by a second
 * kernel, one warp a column. */
#include "route.h"
#include "sort.cuh"
#include "sum.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, MAX_EXPERTS = 256 };

template <int LANES, int EACH> struct split { static const int W = LANES, K = EACH; };

/* f(split<W, K>()) with E <= W K */
template <class F> static void for_experts(int E, F f) {
    assert(E >= 1 && E <= MAX_EXPERTS);
    if (E <= 8)
        f(split<8, 1>());
    else if (E <= 16)
        f(split<16, 1>());
    else if (E <= 32)
        f(split<32, 1>());
    else if (E <= 64)
        f(split<32, 2>());
    else if (E <= 128)
        f(split<32, 4>());
    else
        f(split<32, 8>());
}

template <int W> static __device__ __forceinline__ unsigned lanes_max(unsigned x) {
    if constexpr (W == 32) {
        return __reduce_max_sync(~0u, x);
    } else {
        for (int step = W / 2; step > 0; step /= 2) x = max(x, __shfl_xor_sync(~0u, x, step));
        return x;
    }
}

template <int W> static __device__ __forceinline__ unsigned lanes_min(unsigned x) {
    return ~lanes_max<W>(~x);
}

/* Unsigned integers in the order of the floats; 0 and -0 are equal, NaN is 0, below all others. */
static __device__ __forceinline__ unsigned rank_bits(float x) {
    unsigned bits = __float_as_uint(x == 0 ? 0.0f : x);
    return isnan(x) ? 0 : bits >> 31 ? ~bits : bits | 1u << 31;
}

/* The CPU backend's choice of A experts, bit k of the result: this lane's k-th is chosen. It takes
 * the first free expert and goes on to any with a higher score, so that a NaN wins if it is first
 * and never otherwise. */
template <int W, int K>
static __device__ __forceinline__ unsigned choose(const float (&score)[K], int lane, int E, int A) {
    unsigned bits[K], free = 0, chosen = 0;
    bool nan = false;
    for (int k = 0; k < K; k++) {
        bits[k] = rank_bits(score[k]);
        if (lane + W * k < E) free |= 1u << k, nan |= isnan(score[k]);
    }
    bool any_nan = __any_sync(~0u, nan);
    for (int a = 0; a < A; a++) {
        unsigned most = 0, best = ~0u;
        for (int k = 0; k < K; k++)
            if (free >> k & 1) most = max(most, bits[k]);
        most = lanes_max<W>(most);
        for (int k = K - 1; k >= 0; k--)
            if (free >> k & 1 && bits[k] == most) best = lane + W * k;
        best = lanes_min<W>(best);
        if (any_nan) {
            unsigned first = ~0u, first_nan = ~0u;
            for (int k = K - 1; k >= 0; k--)
                if (free >> k & 1) {
                    first = lane + W * k;
                    if (bits[k] == 0) first_nan = first;
                }
            first = lanes_min<W>(first), first_nan = lanes_min<W>(first_nan);
            if (first == first_nan) best = first;
        }
        if (best % W == lane) free &= ~(1u << best / W), chosen |= 1u << best / W;
    }
    return chosen;
}

/* Sums over the tokens: columns[E + 2, blocks] of probs, entropy, z; counts[E, blocks]. */
struct columns {
    double *sums;
    uint32_t *counts;
};

static struct columns columns_in(void *scratch, int E) {
    double *sums = static_cast<double *>(scratch);
    return {sums, reinterpret_cast<uint32_t *>(sums + (E + 2) * ROUTE_BLOCKS)};
}

struct token_outputs {
    float *probs, *lse, *p;
    int32_t *ids;
};

/* forced[N, A] NULL: the experts are chosen, and written to out.ids. */
template <int W, int K>
static __global__ void __launch_bounds__(THREADS)
    route_tokens(struct token_outputs out, struct columns columns, const float *logits,
                 const float *bias, const int32_t *forced, int N, int E, int A) {
    const int TOKENS = THREADS / W; /* of a block at once */
    __shared__ double P_of[WARPS][W * K];
    __shared__ uint32_t count_of[WARPS][W * K];
    int lane = threadIdx.x % W, warp = threadIdx.x / 32;
    int neighbours = threadIdx.x % 32 / W * W; /* first of this token's lanes in the warp */
    double P[K] = {}, entropy = 0, z = 0;
    uint32_t count[K] = {};
    float shift[K];
    for (int k = 0; k < K; k++) shift[k] = bias && lane + W * k < E ? bias[lane + W * k] : 0;

    for (int first = blockIdx.x * TOKENS; first < N; first += gridDim.x * TOKENS) {
        int i = first + threadIdx.x / W;
        bool live = i < N;
        const float *in = logits + static_cast<size_t>(i) * E;
        float logit[K], prob[K], most = -INFINITY, sum = 0;
        for (int k = 0; k < K; k++) {
            bool mine = lane + W * k < E;
            logit[k] = mine ? live ? in[lane + W * k] : 0 : -INFINITY;
            most = fmaxf(most, logit[k]);
        }
        most = warp_max(most, W);
        for (int k = 0; k < K; k++) sum += prob[k] = lane + W * k < E ? expf(logit[k] - most) : 0;
        sum = warp_sum(sum, W);
        float lse = most + logf(sum), score[K];
        for (int k = 0; k < K; k++) prob[k] /= sum, score[k] = prob[k] + shift[k];

        unsigned chosen = 0;
        if (!forced)
            chosen = choose<W, K>(score, lane, E, A);
        else if (live)
            for (int a = 0; a < A; a++) {
                int e = forced[static_cast<size_t>(i) * A + a];
                if (e % W == lane) chosen |= 1u << e / W;
            }
        float total = 0;
        for (int k = 0; k < K; k++)
            if (chosen >> k & 1) total += prob[k];
        total = warp_sum(total, W);

        size_t row = static_cast<size_t>(i) * E, at = static_cast<size_t>(i) * A;
        for (int k = 0; k < K; k++) { /* ids ascend with k, then with the lane */
            bool taken = chosen >> k & 1;
            unsigned all = __ballot_sync(~0u, taken) >> neighbours;
            if (W < 32) all &= (1u << W % 32) - 1;
            if (live && taken) {
                size_t place = at + __popc(all & ((1u << lane) - 1));
                if (!forced) out.ids[place] = lane + W * k;
                out.p[place] = prob[k] / total;
                count[k]++;
            }
            at += __popc(all);
            if (live && lane + W * k < E) {
                out.probs[row + lane + W * k] = prob[k];
                P[k] += prob[k];
                entropy -= static_cast<double>(prob[k]) * logit[k];
            }
        }
        if (live && lane == 0) {
            out.lse[i] = lse;
            entropy += lse;
            z += static_cast<double>(lse) * lse;
        }
    }

    for (int k = 0; k < K; k++) {
        for (int step = W; step < 32; step *= 2) {
            P[k] += __shfl_xor_sync(~0u, P[k], step);
            count[k] += __shfl_xor_sync(~0u, count[k], step);
        }
        if (threadIdx.x % 32 < W) {
            P_of[warp][lane + W * k] = P[k];
            count_of[warp][lane + W * k] = count[k];
        }
    }
    entropy = block_sum<THREADS>(entropy);
    z = block_sum<THREADS>(z);
    if (threadIdx.x == 0) {
        columns.sums[E * gridDim.x + blockIdx.x] = entropy;
        columns.sums[(E + 1) * gridDim.x + blockIdx.x] = z;
    }
    if (threadIdx.x < E) { /* block_sum's barriers are behind the writes above */
        double sum = 0;
        uint32_t tokens = 0;
        for (int w = 0; w < WARPS; w++)
            sum += P_of[w][threadIdx.x], tokens += count_of[w][threadIdx.x];
        columns.sums[threadIdx.x * gridDim.x + blockIdx.x] = sum;
        columns.counts[threadIdx.x * gridDim.x + blockIdx.x] = tokens;
    }
}

/* Adds up the columns, `blocks` high; none: zeros. */
static __global__ void __launch_bounds__(THREADS)
    sum_columns(uint32_t *counts, double *P, double *entropy, double *z, struct columns columns,
                int blocks, int E) {
    int lane = threadIdx.x % 32, c = (blockIdx.x * THREADS + threadIdx.x) / 32;
    if (c < E + 2) {
        double sum = 0;
        for (int b = lane; b < blocks; b += 32) sum += columns.sums[c * blocks + b];
        sum = warp_sum(sum);
        if (lane == 0) *(c < E ? P + c : c == E ? entropy : z) = sum;
    } else if (c < 2 * E + 2) {
        int e = c - E - 2;
        uint32_t sum = 0;
        for (int b = lane; b < blocks; b += 32) sum += columns.counts[e * blocks + b];
        sum = __reduce_add_sync(~0u, sum);
        if (lane == 0) counts[e] = sum;
    }
}

/* out[e] = d loss / d logit_e through p (renormalised over the chosen), the auxiliary loss and the
 * z-loss; see route.h. */
template <class T, int W, int K>
static __global__ void __launch_bounds__(THREADS)
    route_tokens_backward(T *dlogits, const float *__restrict__ dp, const float *__restrict__ probs,
                          const float *__restrict__ lse, const int32_t *__restrict__ ids,
                          const float *__restrict__ p, const float *__restrict__ balance,
                          const float *__restrict__ dz, int N, int E, int A) {
    int lane = threadIdx.x % W, token = blockIdx.x * (THREADS / W) + threadIdx.x / W;
    int i = min(token, N - 1); /* all lanes are needed for the sum */
    size_t row = static_cast<size_t>(i) * E, at = static_cast<size_t>(i) * A;
    float prob[K], ds[K], chosen = 0, mean = 0, dot = 0;
    for (int k = 0; k < K; k++) {
        int e = lane + W * k;
        prob[k] = e < E ? probs[row + e] : 0;
        ds[k] = e < E ? balance[e] : 0;
    }
    for (int a = 0; a < A; a++) {
        chosen += probs[row + ids[at + a]];
        mean += dp[at + a] * p[at + a];
    }
    for (int a = 0; a < A; a++) {
        int e = ids[at + a];
        float share = (dp[at + a] - mean) / chosen;
        for (int k = 0; k < K; k++)
            if (e == lane + W * k) ds[k] += share;
    }
    for (int k = 0; k < K; k++) dot += ds[k] * prob[k];
    dot = warp_sum(dot, W);
    float more = 2 * dz[0] * lse[i];
    for (int k = 0; k < K; k++)
        if (token < N && lane + W * k < E)
            dlogits[row + lane + W * k] = from_float<T>(prob[k] * (ds[k] - dot + more));
}

static void route(struct token_outputs out, uint32_t *counts, double *P, double *entropy, double *z,
                  const float *logits, const float *bias, const int32_t *forced, void *scratch,
                  int N, int E, int A, cudaStream_t stream) {
    struct columns columns = columns_in(scratch, E);
    int blocks = 0;
    assert(A >= 1 && A <= E);
    if (N > 0)
        for_experts(E, [&](auto s) {
            const int W = decltype(s)::W, K = decltype(s)::K;
            blocks = ceil_div(N, THREADS / W);
            if (blocks > ROUTE_BLOCKS) blocks = ROUTE_BLOCKS;
            route_tokens<W, K>
                <<<blocks, THREADS, 0, stream>>>(out, columns, logits, bias, forced, N, E, A);
            check(cudaGetLastError());
        });
    sum_columns<<<ceil_div(2 * E + 2, WARPS), THREADS, 0, stream>>>(counts, P, entropy, z, columns,
                                                                    blocks, E);
    check(cudaGetLastError());
}

extern "C" void route_forward(float *probs, float *lse, int32_t *ids, float *p, uint32_t *counts,
                              double *P, double *entropy, double *z, const float *logits,
                              const float *bias, void *scratch, int N, int E, int A,
                              cudaStream_t stream) {
    route({probs, lse, p, ids}, counts, P, entropy, z, logits, bias, nullptr, scratch, N, E, A,
          stream);
}

extern "C" void route_forced(float *probs, float *lse, const int32_t *ids, float *p,
                             uint32_t *counts, double *P, double *entropy, double *z,
                             const float *logits, void *scratch, int N, int E, int A,
                             cudaStream_t stream) {
    route({probs, lse, p, nullptr}, counts, P, entropy, z, logits, nullptr, ids, scratch, N, E, A,
          stream);
}

extern "C" void route_backward(enum real t, void *dlogits, const float *dp, const float *probs,
                               const float *lse, const int32_t *ids, const float *p,
                               const float *balance, const float *dz, int N, int E, int A,
                               cudaStream_t stream) {
    if (N == 0) return;
    for_type(t, [&](auto zero) {
        using T = decltype(zero);
        for_experts(E, [&](auto s) {
            const int W = decltype(s)::W, K = decltype(s)::K;
            route_tokens_backward<T, W, K><<<ceil_div(N, THREADS / W), THREADS, 0, stream>>>(
                static_cast<T *>(dlogits), dp, probs, lse, ids, p, balance, dz, N, E, A);
            check(cudaGetLastError());
        });
    });
}
