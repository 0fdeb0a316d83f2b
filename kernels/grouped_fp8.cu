/* The launches of the grouped products in eight bits. The kernel is in grouped_fp8_kernel.cuh. */
#include "grouped_fp8.h"
#include "grouped_fp8_kernel.cuh"
#include "grouped_launch.cuh"

using namespace grouped_gemm;

cudaError_t grouped_gemm::prepare_fp8(struct grouped *g) {
    cudaError_t status = prepare(g, grouped_fp8_kernel<UP>);
    if (status == cudaSuccess) status = prepare(g, grouped_fp8_kernel<UP, /*LOW_Z=*/true>);
    if (status == cudaSuccess) status = prepare(g, grouped_fp8_kernel<FORWARD>);
    if (status == cudaSuccess) status = prepare(g, grouped_fp8_kernel<WEIGHTS>);
    return status;
}

/* [rows, cols], boxes of 128 columns and `tall` rows */
static CUtensorMap by_rows(const struct grouped *g, struct fp8_matrix x, int rows, int cols,
                           int tall) {
    assert(rows % FP8_DEPTH == 0 && cols % FP8_DEPTH == 0);
    return tensor_map(g->encode, element::byte, x.codes,
                      {{size(cols), 1, FP8_DEPTH}, {size(rows), size(cols), tall}});
}

static CUtensorMap map_of_results(const struct grouped *g, void *y, int rows, int cols) {
    return tensor_map(g->encode, element::bf16, y,
                      {{size(cols), 1, 64}, {size(rows), size(cols), 16}});
}

/* Of rows by weights, across / 128 scales of a matrix by down / 128, depth-first. */
static fp8_scales scales_of(struct fp8_matrix x, struct fp8_matrix w, int rows, int across,
                            int depth) {
    fp8_scales f = {};
    assert(across % FP8_DEPTH == 0 && depth % FP8_DEPTH == 0);
    f.a = x.scales, f.b = w.scales, f.a_step = rows;
    f.b_step = 1, f.b_across = depth / FP8_DEPTH, f.b_last = across / FP8_DEPTH - 1;
    f.b_expert = (f.b_last + 1) * f.b_across;
    return f;
}

void grouped_fp8_up(struct grouped *g, struct fp8_z z, struct fp8_matrix h, struct fp8_matrix x,
                    struct fp8_matrix up, const float *p, struct grouped_rows r, int D, int F,
                    cudaStream_t stream) {
    maps m;
    work w = work_of(r);
    fp8_scales f = scales_of(x, up, r.rows, 2 * F, D);
    const int z_rows = r.z.base ? r.z.rows : r.rows;
    assert(F % FP8_DEPTH == 0);
    m.a = by_rows(g, x, r.rows, D, 64);
    m.b = tensor_map(g->encode, element::byte, up.codes,
                     {{size(D), 1, FP8_DEPTH},
                      {size(F), size(D), TILE_COLS / 2},
                      {2, size(F) * size(D), 1},
                      {size(r.E), 2 * size(F) * size(D), 1}});
    m.c = m.z = tensor_map(
        g->encode, z.bf16 ? element::bf16 : element::byte, z.bf16 ? z.bf16 : z.low.codes,
        {{size(F), 1, z.bf16 ? 64 : +FP8_DEPTH}, {2, size(F), 1}, {size(z_rows), 2 * size(F), 16}});
    m.h = by_rows(g, h, r.rows, F, 16);
    f.h = h.scales, f.z = z.low.scales, f.z_rows = z_rows, w.p = p, w.base[1] = r.z.base,
    w.steps = D / FP8_DEPTH, w.tiles_wide = F / FP8_DEPTH;
    launch(g, r.multiprocessors, stream,
           z.bf16 ? grouped_fp8_kernel<UP> : grouped_fp8_kernel<UP, /*LOW_Z=*/true>, m, w, f);
}

/* y has `there` rows. */
static void forward(struct grouped *g, void *y, int there, struct fp8_matrix x,
                    struct fp8_matrix weights, struct grouped_rows r, int N, int K,
                    cudaStream_t stream) {
    maps m;
    work w = work_of(r);
    m.a = by_rows(g, x, r.rows, K, 64);
    m.b = tensor_map(g->encode, element::byte, weights.codes,
                     {{size(K), 1, FP8_DEPTH},
                      {size(N), size(K), TILE_COLS / 2},
                      {size(r.E), size(N) * size(K), 1}});
    m.c = m.h = m.z = map_of_results(g, y, there, N);
    w.steps = K / FP8_DEPTH, w.tiles_wide = ceil_div(N, +TILE_COLS);
    launch(g, r.multiprocessors, stream, grouped_fp8_kernel<FORWARD>, m, w,
           scales_of(x, weights, r.rows, N, K));
}

void grouped_fp8_forward(struct grouped *g, void *y, struct fp8_matrix x, struct fp8_matrix w,
                         struct grouped_rows r, int N, int K, cudaStream_t stream) {
    forward(g, y, r.rows, x, w, r, N, K, stream);
}

void grouped_fp8_dense(struct grouped *g, void *y, struct fp8_matrix x, struct fp8_matrix w,
                       struct grouped_rows r, int rows, int N, int K, cudaStream_t stream) {
    assert(r.E == 1 && !r.offsets && rows <= r.rows);
    forward(g, y, rows, x, w, r, N, K, stream);
}

void grouped_fp8_weights(struct grouped *g, struct gradient dw, struct fp8_matrix dz,
                         struct fp8_matrix x, struct grouped_rows r, int N, int K,
                         cudaStream_t stream) {
    maps m;
    work w = work_of(r);
    fp8_scales f = {};
    assert(N % FP8_DEPTH == 0 && K % FP8_DEPTH == 0);
    m.a = by_rows(g, dz, N, r.rows, 64);
    m.b = by_rows(g, x, K, r.rows, TILE_COLS / 2);
    set_gradient(g, m, w, dw, r.E, N, K);
    f.a = dz.scales, f.a_step = N;
    f.b = x.scales, f.b_step = K / FP8_DEPTH, f.b_across = 1, f.b_last = f.b_step - 1;
    launch(g, r.multiprocessors, stream, grouped_fp8_kernel<WEIGHTS>, m, w, f);
}
