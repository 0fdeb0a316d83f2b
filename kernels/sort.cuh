/* A stable sort of n items by a key below 256, by counting, in two launches: each block counts the
 * keys of its span of items; then each block adds up what lies before it and places its own. The
 * items of a key may begin at multiples of a unit: then places are left between keys.
 *
 * `Items` is a struct with key(i), the key of item i, and place(i, to), called once for each item
 * with its place in the sorted order. Both are device functions. */
#ifndef REGULON_KERNELS_SORT_CUH
#define REGULON_KERNELS_SORT_CUH
#include "scratch.h"
#include "vector.cuh"

enum { SORT_THREADS = 512, SORT_WARPS = SORT_THREADS / 32 };

/* Items of a block: a multiple of SORT_THREADS. */
static inline int sort_span(int n) {
    return ceil_div(n, SORT_BLOCKS * SORT_THREADS) * SORT_THREADS;
}

/* counts[keys, blocks] */
template <class Items>
static __global__ void __launch_bounds__(SORT_THREADS)
    sort_count(uint32_t *counts, Items items, int n, int span, int keys) {
    __shared__ uint32_t count[SORT_KEYS];
    if (threadIdx.x < SORT_KEYS) count[threadIdx.x] = 0;
    __syncthreads();
    for (int step = 0; step < span; step += SORT_THREADS) {
        int i = blockIdx.x * span + step + threadIdx.x, key = i < n ? items.key(i) : -1;
        unsigned same = __match_any_sync(~0u, key);
        if (key >= 0 && threadIdx.x % 32 == __ffs(same) - 1) atomicAdd(&count[key], __popc(same));
    }
    __syncthreads();
    if (threadIdx.x < keys) counts[threadIdx.x * gridDim.x + blockIdx.x] = count[threadIdx.x];
}

/* Sums of counts[keys, blocks]: of[key] over all blocks, before[key] over those before this one. */
static __device__ __forceinline__ void sort_sum_blocks(uint32_t *of, uint32_t *before,
                                                       const uint32_t *counts, int keys) {
    int lane = threadIdx.x % 32, blocks = gridDim.x, here = blockIdx.x;
    for (int key = threadIdx.x / 32; key < keys; key += SORT_WARPS) {
        uint32_t all = 0, earlier = 0;
        for (int b = lane; b < blocks; b += 32) {
            uint32_t count = counts[key * blocks + b];
            all += count;
            if (b < here) earlier += count;
        }
        all = __reduce_add_sync(~0u, all), earlier = __reduce_add_sync(~0u, earlier);
        if (lane == 0) of[key] = all, before[key] = earlier;
    }
}

/* Where the keys' items lie. */
struct sort_places {
    int32_t *begins; /* [keys + 1] first place of each key's, then the place after the last unit;
                        NULL: not asked for */
    int32_t *ends;   /* [keys] the place after its last item; NULL: not asked for */
    uint32_t unit;
};

/* of[key] becomes its items' first place; returns the sum of all units. One warp. */
static __device__ __forceinline__ uint32_t sort_scan_keys(uint32_t *of, uint32_t unit, int keys) {
    int lane = threadIdx.x % 32;
    uint32_t carry = 0;
    for (int first = 0; first < keys; first += 32) {
        int key = first + lane;
        uint32_t count = key < keys ? ceil_div(of[key], unit) * unit : 0, sum = count;
        for (int step = 1; step < 32; step *= 2) {
            uint32_t below = __shfl_up_sync(~0u, sum, step);
            if (lane >= step) sum += below;
        }
        if (key < keys) of[key] = carry + sum - count;
        carry += __shfl_sync(~0u, sum, 31);
    }
    return carry;
}

/* Each warp owns a piece of the block's span and walks it twice, once to count and once to place,
 * so that the warps wait for each other only in between. */
template <class Items>
static __global__ void __launch_bounds__(SORT_THREADS)
    sort_place(sort_places out, const uint32_t *counts, Items items, int n, int span, int keys) {
    __shared__ uint32_t next[SORT_WARPS][SORT_KEYS], offset[SORT_KEYS], before[SORT_KEYS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, piece = span / SORT_WARPS;
    int first = blockIdx.x * span + warp * piece;
    uint32_t *mine = next[warp];
    for (int key = lane; key < keys; key += 32) mine[key] = 0;
    __syncwarp();
    for (int step = 0; step < piece; step += 32) {
        int i = first + step + lane, key = i < n ? items.key(i) : -1;
        unsigned same = __match_any_sync(~0u, key);
        if (key >= 0 && lane == __ffs(same) - 1) mine[key] += __popc(same);
        __syncwarp();
    }
    sort_sum_blocks(offset, before, counts, keys);
    __syncthreads();
    if (warp == 0) {
        const bool tells = blockIdx.x == 0;
        if (tells && out.ends) /* their counts as yet */
            for (int key = lane; key < keys; key += 32) out.ends[key] = offset[key];
        __syncwarp();
        uint32_t all = sort_scan_keys(offset, out.unit, keys);
        __syncwarp();
        if (tells && out.begins) {
            for (int key = lane; key < keys; key += 32) out.begins[key] = offset[key];
            if (lane == 0) out.begins[keys] = all;
        }
        if (tells && out.ends)
            for (int key = lane; key < keys; key += 32) out.ends[key] += offset[key];
    }
    __syncthreads();
    if (threadIdx.x < keys) {
        uint32_t to = offset[threadIdx.x] + before[threadIdx.x];
        for (int w = 0; w < SORT_WARPS; w++) {
            uint32_t count = next[w][threadIdx.x];
            next[w][threadIdx.x] = to;
            to += count;
        }
    }
    __syncthreads();
    for (int step = 0; step < piece; step += 32) {
        int i = first + step + lane, key = i < n ? items.key(i) : -1;
        unsigned same = __match_any_sync(~0u, key), below = same & ((1u << lane) - 1);
        uint32_t start = key >= 0 ? mine[key] : 0;
        __syncwarp();
        if (key >= 0 && below == 0) mine[key] = start + __popc(same);
        __syncwarp();
        if (key >= 0) items.place(i, start + __popc(below));
    }
}

/* Sorts n >= 1 items with keys below `keys` <= SORT_KEYS; scratch: sort_scratch() bytes. */
template <class Items>
static void sort(Items items, sort_places places, void *scratch, int n, int keys,
                 cudaStream_t stream) {
    uint32_t *counts = static_cast<uint32_t *>(scratch);
    int span = sort_span(n), blocks = ceil_div(n, span);
    assert(n < 1 << 30 && keys <= SORT_KEYS);
    sort_count<<<blocks, SORT_THREADS, 0, stream>>>(counts, items, n, span, keys);
    check(cudaGetLastError());
    sort_place<<<blocks, SORT_THREADS, 0, stream>>>(places, counts, items, n, span, keys);
    check(cudaGetLastError());
}
#endif
