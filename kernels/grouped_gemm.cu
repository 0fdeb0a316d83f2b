/* The grouped products' launches: what each is told of its matrices. The kernel is in
 * grouped_kernel.cuh. */
#include "grouped_gemm.h"
#include "grouped_kernel.cuh"
#include "grouped_launch.cuh"
#include "parts.cuh"
#include "probe.cuh"

namespace grouped_gemm {

/* 1 if the code that runs on this device has the instructions. */
static __global__ void probe(int *can) {
    *can = HOPPER;
}

} // namespace grouped_gemm

using namespace grouped_gemm;

struct grouped *grouped_open(const char **why) {
    int device = 0, major = 0, minor = 0;
    struct grouped g = {};
    check(cudaGetDevice(&device));
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    check(cudaDeviceGetAttribute(&g.multiprocessors, cudaDevAttrMultiProcessorCount, device));
    g.clusters = g.multiprocessors / CLUSTER;
    *why = "it needs compute capability 9.0";
    if (major != 9 || minor != 0) return nullptr;
    *why = "this program was not compiled for sm_90a";
    if (!probed(probe)) return nullptr;
    *why = "the driver has no cuTensorMapEncodeTiled";
    g.encode = tensor_map_encoder();
    if (!g.encode) return nullptr;
    check(prepare(&g, grouped_gemm_kernel<FORWARD>));
    check(prepare(&g, grouped_gemm_kernel<UP>));
    check(prepare(&g, grouped_gemm_kernel<BACKWARD>));
    check(prepare(&g, grouped_gemm_kernel<DOWN_BACKWARD>));
    check(prepare(&g, grouped_gemm_kernel<WEIGHTS>));
    check(prepare_fp8(&g));
    *why = "no two of its multiprocessors can work together";
    return g.clusters > 0 ? new struct grouped(g) : nullptr;
}

void grouped_close(struct grouped *g) {
    delete g;
}

/* [rows, cols], boxes of 64 columns and `tall` rows */
static CUtensorMap by_rows(const struct grouped *g, const void *x, int rows, int cols, int tall) {
    return tensor_map(g->encode, element::bf16, x,
                      {{size(cols), 1, 64}, {size(rows), size(cols), tall}});
}

/* The same matrix MN-major: `blocks` blocks of 64 columns by 64 rows a box */
static CUtensorMap by_blocks(const struct grouped *g, const void *x, int rows, int cols,
                             int blocks) {
    return tensor_map(g->encode, element::bf16, x,
                      {{64, 1, 64}, {size(rows), size(cols), 64}, {size(cols) / 64, 64, blocks}});
}

/* w[E, N, K] for products that sum over N */
static CUtensorMap weights_mn(const struct grouped *g, const void *w, int E, int N, int K) {
    return tensor_map(g->encode, element::bf16, w,
                      {{64, 1, 64},
                       {size(N), size(K), 64},
                       {size(K) / 64, 64, 2},
                       {size(E), size(N) * size(K), 1}});
}

/* z[rows, 2F], a box of 16 rows of gate or of up */
static CUtensorMap gate_or_up(const struct grouped *g, const void *z, int rows, int F) {
    return tensor_map(g->encode, element::bf16, z,
                      {{size(F), 1, 64}, {2, size(F), 1}, {size(rows), 2 * size(F), 16}});
}

/* Rows of an operand's array. */
static int rows_of(const struct grouped_place &at, const struct grouped_rows &r) {
    return at.base ? at.rows : r.rows;
}

/* ---- the products ---- */

void grouped_up(struct grouped *g, void *z, void *h, const void *x, const void *up, const float *p,
                struct grouped_rows r, int D, int F, cudaStream_t stream) {
    assert(D % GROUPED_UNIT == 0 && F % GROUPED_UNIT == 0);
    maps m;
    work w = work_of(r);
    m.a = by_rows(g, x, rows_of(r.x, r), D, 64);
    m.b = tensor_map(g->encode, element::bf16, up,
                     {{size(D), 1, 64},
                      {size(F), size(D), TILE_COLS / 2},
                      {2, size(F) * size(D), 1},
                      {size(r.E), 2 * size(F) * size(D), 1}});
    m.c = m.z = gate_or_up(g, z, rows_of(r.z, r), F);
    m.h = by_rows(g, h, r.rows, F, 16);
    w.base[0] = r.x.base, w.base[1] = r.z.base;
    w.p = p, w.steps = D / TILE_DEPTH, w.tiles_wide = ceil_div(F, TILE_COLS / 2);
    launch(g, r.multiprocessors, stream, grouped_gemm_kernel<UP>, m, w);
}

void grouped_forward(struct grouped *g, void *y, const void *h, const void *weights,
                     struct grouped_rows r, int N, int K, cudaStream_t stream) {
    assert(N % GROUPED_UNIT == 0 && K % GROUPED_UNIT == 0);
    maps m;
    work w = work_of(r);
    m.a = by_rows(g, h, r.rows, K, 64);
    m.b = tensor_map(
        g->encode, element::bf16, weights,
        {{size(K), 1, 64}, {size(N), size(K), TILE_COLS / 2}, {size(r.E), size(N) * size(K), 1}});
    m.c = m.h = m.z = by_rows(g, y, r.rows, N, 16);
    w.steps = K / TILE_DEPTH, w.tiles_wide = ceil_div(N, +TILE_COLS);
    launch(g, r.multiprocessors, stream, grouped_gemm_kernel<FORWARD>, m, w);
}

void grouped_backward(struct grouped *g, void *dx, const void *dz, const void *weights,
                      struct grouped_rows r, int N, int K, cudaStream_t stream) {
    assert(N % GROUPED_UNIT == 0 && K % GROUPED_UNIT == 0);
    maps m;
    work w = work_of(r);
    m.a = by_rows(g, dz, rows_of(r.z, r), N, 64);
    w.base[0] = r.z.base;
    m.b = weights_mn(g, weights, r.E, N, K);
    m.c = m.h = m.z = by_rows(g, dx, r.rows, K, 16);
    w.steps = N / TILE_DEPTH, w.tiles_wide = ceil_div(K, +TILE_COLS);
    launch(g, r.multiprocessors, stream, grouped_gemm_kernel<BACKWARD>, m, w);
}

void grouped_down_backward(struct grouped *g, void *dz, void *h, float *dp, void *parts,
                           const void *dy, const void *z, const void *down, const float *p,
                           struct grouped_rows r, int D, int F, cudaStream_t stream) {
    assert(r.offsets && D % GROUPED_UNIT == 0 && F % GROUPED_UNIT == 0);
    maps m;
    work w = work_of(r);
    m.a = by_rows(g, dy, r.rows, D, 64);
    m.b = weights_mn(g, down, r.E, D, F);
    m.c = gate_or_up(g, dz, rows_of(r.z, r), F), m.z = gate_or_up(g, z, rows_of(r.z, r), F);
    m.h = by_rows(g, h, r.rows, F, 16);
    w.p = p, w.dp = static_cast<float *>(parts), w.base[1] = r.z.base;
    w.steps = D / TILE_DEPTH, w.tiles_wide = ceil_div(F, +TILE_COLS);
    launch(g, r.multiprocessors, stream, grouped_gemm_kernel<DOWN_BACKWARD>, m, w);
    sum_parts(dp, w.dp, r, w.tiles_wide, stream);
}

void grouped_weights(struct grouped *g, struct gradient dw, const void *dz, const void *x,
                     struct grouped_rows r, int N, int K, cudaStream_t stream) {
    assert(N % GROUPED_UNIT == 0 && K % GROUPED_UNIT == 0);
    maps m;
    work w = work_of(r);
    m.a = by_blocks(g, dz, rows_of(r.z, r), N, 1);
    m.b = by_blocks(g, x, rows_of(r.x, r), K, 2);
    w.base[0] = r.z.base, w.base[1] = r.x.base;
    set_gradient(g, m, w, dw, r.E, N, K);
    launch(g, r.multiprocessors, stream, grouped_gemm_kernel<WEIGHTS>, m, w);
}
