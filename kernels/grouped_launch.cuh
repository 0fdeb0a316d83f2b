/* How the grouped kernels are started: persistent, in clusters of two blocks. */
#ifndef REGULON_KERNELS_GROUPED_LAUNCH_CUH
#define REGULON_KERNELS_GROUPED_LAUNCH_CUH
#include "grouped_gemm.h"
#include "grouped_stores.cuh"
#include "tensor_map.cuh"

struct grouped {
    encode_tensor_map encode;
    int multiprocessors;
    int clusters; /* that run at once: a part of the chip may have an odd number */
};

namespace grouped_gemm {

static inline cudaLaunchConfig_t config_of(cudaLaunchAttribute *cluster) {
    cudaLaunchConfig_t c = {};
    cluster->id = cudaLaunchAttributeClusterDimension;
    cluster->val.clusterDim.x = CLUSTER, cluster->val.clusterDim.y = cluster->val.clusterDim.z = 1;
    c.blockDim = THREADS, c.dynamicSmemBytes = sizeof(shared);
    c.attrs = cluster, c.numAttrs = 1;
    return c;
}

/* Once a kernel and process. */
template <class... ARGS> static cudaError_t prepare(struct grouped *g, void (*kernel)(ARGS...)) {
    cudaLaunchAttribute cluster;
    cudaLaunchConfig_t c = config_of(&cluster);
    int clusters = 0;
    cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(sizeof(shared)));
    if (status != cudaSuccess) return status;
    c.gridDim = g->multiprocessors / CLUSTER * CLUSTER;
    status = cudaOccupancyMaxActiveClusters(&clusters, kernel, &c);
    if (clusters < g->clusters) g->clusters = clusters;
    return status;
}

/* On so many multiprocessors, 0: all. */
template <class... ARGS>
static void launch(const struct grouped *g, int multiprocessors, cudaStream_t stream,
                   void (*kernel)(ARGS...), const ARGS &...args) {
    cudaLaunchAttribute cluster;
    cudaLaunchConfig_t c = config_of(&cluster);
    int clusters = g->clusters, budget = multiprocessors / CLUSTER;
    if (budget > 0 && budget < clusters) clusters = budget;
    c.gridDim = clusters * CLUSTER, c.stream = stream;
    check(cudaLaunchKernelEx(&c, kernel, args...));
}

static inline size_t size(int n) {
    return static_cast<size_t>(n);
}

static inline work work_of(const struct grouped_rows &r) {
    work w = {};
    assert(r.E >= 1 && r.E <= GROUPED_EXPERTS && r.rows >= 1);
    w.offsets = r.offsets, w.E = r.E, w.rows = r.rows;
    return w;
}

/* What a launch of WEIGHTS is told of its result. The map of own rows has the coordinates of whole:
 * it begins where the first row of all would lie. */
static inline void set_gradient(const struct grouped *g, maps &m, work &w, const gradient &dw,
                                int E, int N, int K) {
    auto map = [&](const float *at) {
        return tensor_map(
            g->encode, element::fp32, at,
            {{size(K), 1, 32}, {size(N), size(K), BOX_LINES}, {size(E), size(N) * size(K), 1}});
    };
    assert(dw.first % BOX_LINES == 0 && dw.rows % BOX_LINES == 0 && N % BOX_LINES == 0);
    assert(!dw.own || (!dw.add && dw.first + dw.rows <= size(E) * size(N)));
    m.c = m.h = m.z = map(dw.whole);
    w.N = N, w.tiles_high = ceil_div(N, +TILE_ROWS), w.tiles_wide = ceil_div(K, +TILE_COLS);
    w.add = dw.add;
    if (!dw.own) return;
    m.h = map(reinterpret_cast<const float *>(reinterpret_cast<uintptr_t>(dw.own) -
                                              dw.first * size(K) * sizeof(float)));
    w.own_first = static_cast<int>(dw.first), w.own_rows = static_cast<int>(dw.rows);
    w.own_add = dw.own_add;
}

/* grouped_fp8.cu's kernels. */
cudaError_t prepare_fp8(struct grouped *g);

} // namespace grouped_gemm
#endif
