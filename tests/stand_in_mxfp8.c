/* What tests/mxfp8_products.c takes of a GPU, in host memory and at once: the kernels by their
 * definitions, and of CUDA and cuBLASLt what works on a device. */
#include "config.h"
#include "grouped.h"
#include "mxfp8.h"
#include "mxfp8_pack.h"
#include "mxfp8_packed.h"
#include "mxfp8_up.h"
#include "swiglu.h"
#include <cublasLt.h>

/* ---- kernels ---- */

void mxfp8_pack(struct mxfp8_matrix by_row, struct mxfp8_matrix by_col, const void *x,
                struct mxfp8_set set, int cols, cudaStream_t stream) {
    struct wanted to[2] = {{by_row.codes, by_row.scales, 0, 0},
                           {by_col.codes, by_col.scales, 0, 0}};
    (void)stream;
    for (int e = 0; e < set.n; e++) {
        int first = set.offsets ? set.offsets[e] : e * set.rows,
            rows = set.offsets ? set.offsets[e + 1] - first : set.rows;
        size_t n = (size_t)rows * (size_t)cols;
        const half_t *from = (const half_t *)x + (size_t)first * (size_t)cols;
        float *values = memory_alloc_array(n + 1, sizeof *values);
        for (size_t i = 0; i < n; i++) values[i] = to_float(from[i]);
        for (int down = 0; down < 2; down++)
            if (to[down].codes) expect(&to[down], values, rows, cols, down);
        memory_free(values);
    }
}

void mxfp8_round(void *out, const void *x, enum mxfp8_blocks blocks, struct mxfp8_rows r, int cols,
                 cudaStream_t stream) {
    size_t n = (size_t)r.rows * (size_t)cols;
    const half_t *from = x;
    float *v = memory_alloc_array(n + 1, sizeof *v);
    struct format f = {E4M3, FORMAT_E8M0, blocks == MXFP8_DOWN_COLUMNS ? 32 : 1,
                       blocks == MXFP8_DOWN_COLUMNS ? 1 : 32};
    (void)stream;
    for (size_t i = 0; i < n; i++) v[i] = to_float(from[i]);
    format_round(f, v, r.rows, cols, (size_t)cols, v, (size_t)cols, NULL, NULL);
    for (size_t i = 0; i < n; i++) ((half_t *)out)[i] = to_half(v[i]);
    memory_free(v);
}

void swiglu_forward(enum real t, void *h, const void *z, const float *p, int R, const int32_t *last,
                    int F, cudaStream_t stream) {
    (void)t;
    (void)last;
    (void)stream;
    for (int i = 0; i < R; i++)
        for (int j = 0; j < F; j++) {
            const half_t *row = (const half_t *)z + (size_t)i * 2 * (size_t)F;
            float g = to_float(row[j]), u = to_float(row[F + j]);
            ((half_t *)h)[(size_t)i * (size_t)F + (size_t)j] =
                to_half(p[i] * u * (g / (1 + expf(-g))));
        }
}

void swiglu_backward(enum real t, void *dz, float *dp, void *h, const void *dh, const void *z,
                     const float *p, int R, const int32_t *last, int F, cudaStream_t stream) {
    (void)t;
    (void)last;
    (void)stream;
    for (int i = 0; i < R; i++) {
        double dot = 0;
        for (int j = 0; j < F; j++) {
            size_t gate = (size_t)i * 2 * (size_t)F + (size_t)j, up = gate + (size_t)F,
                   at = (size_t)i * (size_t)F + (size_t)j;
            float g = to_float(((const half_t *)z)[gate]), u = to_float(((const half_t *)z)[up]),
                  d = to_float(((const half_t *)dh)[at]), s = 1 / (1 + expf(-g));
            ((half_t *)dz)[gate] = to_half(p[i] * d * u * s * (1 + g * (1 - s)));
            ((half_t *)dz)[up] = to_half(p[i] * d * g * s);
            ((half_t *)h)[at] = to_half(p[i] * g * s * u);
            dot += (double)(d * g * s * u);
        }
        dp[i] = (float)dot;
    }
}

struct mxfp8_up {
    int any;
};

struct mxfp8_up *mxfp8_up_open(const char **why) {
    static struct mxfp8_up one;
    *why = NULL;
    return &one;
}

void mxfp8_up_close(struct mxfp8_up *u) {
    (void)u;
}

/* x[rows, cols] from row `first` of a matrix of that width on. */
static float *unpacked(struct mxfp8_matrix m, size_t first, int rows, int cols) {
    size_t n, width = (size_t)cols;
    const uint8_t *codes = m.codes + first * width,
                  *scales = m.scales + mxfp8_scales(1, first, width);
    struct scale_place *places = scale_places(rows, cols, &n);
    float *x = memory_alloc_array((size_t)rows * width + 1, sizeof *x);
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 32 && places[i].row >= 0; k++) {
            size_t at = (size_t)places[i].row * width + (size_t)(32 * places[i].block + k);
            x[at] = format_decode(E4M3, codes[at]) * e8m0_decode(scales[i]);
        }
    memory_free(places);
    return x;
}

void mxfp8_up_run(struct mxfp8_up *u, void *z, struct mxfp8_matrix h, struct mxfp8_matrix x,
                  struct mxfp8_matrix up, const float *p, const int32_t *offsets, int E, int rows,
                  int D, int F, cudaStream_t stream) {
    struct wanted to = {h.codes, h.scales, 0, 0};
    (void)u;
    (void)stream;
    for (int e = 0; e < E; e++) {
        int first = offsets[e], n = offsets[e + 1] - first;
        float *a = unpacked(x, (size_t)first, n, D),
              *w = unpacked(up, (size_t)e * 2 * (size_t)F, 2 * F, D),
              *made = memory_alloc_array((size_t)n * (size_t)F + 1, sizeof *made);
        for (int i = 0; i < n; i++) {
            half_t *row = (half_t *)z + (size_t)(first + i) * 2 * (size_t)F;
            for (int j = 0; j < 2 * F; j++) {
                double sum = 0;
                for (int k = 0; k < D; k++) sum += (double)a[i * D + k] * w[j * D + k];
                row[j] = to_half((float)sum);
            }
            for (int j = 0; j < F; j++) {
                float g = to_float(row[j]);
                made[i * F + j] = p[first + i] * to_float(row[F + j]) * (g / (1 + expf(-g)));
            }
        }
        expect(&to, made, n, F, /*down=*/0);
        memory_free(a);
        memory_free(w);
        memory_free(made);
    }
    if (to.n_codes != (size_t)rows * (size_t)F) abort();
}

/* ---- CUDA and cuBLASLt ---- */

cudaError_t CUDARTAPI cudaMallocManaged(void **p, size_t bytes, unsigned flags) {
    (void)flags;
    return posix_memalign(p, 256, bytes) == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t CUDARTAPI cudaFree(void *p) {
    free(p);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    (void)stream;
    memset(p, value, bytes);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void) {
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    (void)flags;
    *stream = NULL;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    (void)flags;
    *event = NULL;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)event;
    (void)stream;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)stream;
    (void)event;
    (void)flags;
    return cudaSuccess;
}

cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = NULL;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t handle) {
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}
