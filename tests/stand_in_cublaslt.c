#define _GNU_SOURCE
#include "stand_in_cublaslt.h"
#include "backend/formats.h"
#include "grouped.h"
#include "mxfp8_tiles.h"
#include <cublasLt.h>
#include <dlfcn.h>

struct stand_in_lt stand_in_lt;

#if CUBLAS_VERSION >= 120800 /* older ones have no such scales */

static uint64_t of_desc(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what, size_t size) {
    uint64_t value = 0;
    size_t got;
    if (cublasLtMatmulDescGetAttribute(d, what, &value, size, &got) != CUBLAS_STATUS_SUCCESS)
        stand_in_lt.wrong++;
    return value;
}

struct layout {
    uint64_t rows, cols, ld;
    uint32_t type;
};

static struct layout of_layout(cublasLtMatrixLayout_t l) {
    struct layout t = {0};
    size_t got;
    cublasLtMatrixLayoutGetAttribute(l, CUBLASLT_MATRIX_LAYOUT_TYPE, &t.type, sizeof t.type, &got);
    cublasLtMatrixLayoutGetAttribute(l, CUBLASLT_MATRIX_LAYOUT_ROWS, &t.rows, sizeof t.rows, &got);
    cublasLtMatrixLayoutGetAttribute(l, CUBLASLT_MATRIX_LAYOUT_COLS, &t.cols, sizeof t.cols, &got);
    cublasLtMatrixLayoutGetAttribute(l, CUBLASLT_MATRIX_LAYOUT_LD, &t.ld, sizeof t.ld, &got);
    return t;
}

static int is_mxfp8(cublasLtMatmulDesc_t d) {
    return of_desc(d, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, 4) ==
           CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
}

/* What cuBLAS asks of such products: A transposed, E4M3, 16 bytes everywhere. */
static void check_call(cublasLtMatmulDesc_t d, struct layout a, struct layout b, struct layout c) {
    int right = of_desc(d, CUBLASLT_MATMUL_DESC_TRANSA, 4) == CUBLAS_OP_T &&
                of_desc(d, CUBLASLT_MATMUL_DESC_TRANSB, 4) == CUBLAS_OP_N &&
                of_desc(d, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, 4) ==
                    CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 &&
                of_desc(d, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 8) % 16 == 0 &&
                of_desc(d, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 8) % 16 == 0 &&
                of_desc(d, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 8) != 0 &&
                of_desc(d, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 8) != 0 &&
                a.type == CUDA_R_8F_E4M3 && b.type == CUDA_R_8F_E4M3 &&
                (c.type == CUDA_R_16BF || c.type == CUDA_R_32F) && a.rows == b.rows &&
                a.rows % 32 == 0 && a.ld % 16 == 0 && b.ld % 16 == 0 && a.cols == c.rows &&
                b.cols == c.cols && c.ld >= c.rows && c.ld % 8 == 0;
    stand_in_lt.wrong += !right;
}

/* x[lines, depth], of codes with ld bytes a line. */
static float *decoded(const uint8_t *codes, uint64_t scales, struct layout l) {
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)scales;
    size_t n;
    struct scale_place *places = scale_places((int)l.cols, (int)l.rows, &n);
    float *x = memory_alloc_array(l.cols * l.rows + 1, sizeof *x);
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 32 && places[i].row >= 0; k++) {
            size_t row = (size_t)places[i].row, at = (size_t)(32 * places[i].block + k);
            x[row * l.rows + at] =
                format_decode(E4M3, codes[row * l.ld + at]) * e8m0_decode(bytes[i]);
        }
    memory_free(places);
    return x;
}

static void multiply(cublasLtMatmulDesc_t d, const void *A, struct layout a, const void *B,
                     struct layout b, float beta, void *C, struct layout c) {
    float *x = decoded(A, of_desc(d, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 8), a),
          *y = decoded(B, of_desc(d, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 8), b);
    for (uint64_t j = 0; j < c.cols; j++)
        for (uint64_t i = 0; i < c.rows; i++) {
            double sum = 0;
            float *f = (float *)C + j * c.ld + i;
            half_t *h = (half_t *)C + j * c.ld + i;
            for (uint64_t k = 0; k < a.rows; k++)
                sum += (double)x[i * a.rows + k] * y[j * b.rows + k];
            if (c.type == CUDA_R_32F)
                *f = (float)sum + (beta != 0 ? beta * *f : 0);
            else
                *h = to_half((float)sum + (beta != 0 ? beta * to_float(*h) : 0));
        }
    memory_free(x);
    memory_free(y);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
    cublasLtMatmulPreference_t p, int most, cublasLtMatmulHeuristicResult_t results[], int *n) {
    if (!stand_in_lt.on || !is_mxfp8(d)) {
        __typeof__(cublasLtMatmulAlgoGetHeuristic) *real =
            dlsym(RTLD_NEXT, "cublasLtMatmulAlgoGetHeuristic");
        return real(handle, d, a, b, c, out, p, most, results, n);
    }
    check_call(d, of_layout(a), of_layout(b), of_layout(c));
    stand_in_lt.asked++;
    memset(results, 0, sizeof *results);
    *n = !stand_in_lt.refuses;
    return stand_in_lt.refuses ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t d, const void *alpha, const void *A,
    cublasLtMatrixLayout_t a, const void *B, cublasLtMatrixLayout_t b, const void *beta,
    const void *C, cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t out,
    const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes, cudaStream_t stream) {
    stand_in_lt.products++;
    if (!stand_in_lt.on || !is_mxfp8(d)) {
        __typeof__(cublasLtMatmul) *real = dlsym(RTLD_NEXT, "cublasLtMatmul");
        return real(handle, d, alpha, A, a, B, b, beta, C, c, D, out, algo, workspace, bytes,
                    stream);
    }
    cuda(cudaDeviceSynchronize());
    check_call(d, of_layout(a), of_layout(b), of_layout(out));
    stand_in_lt.wrong +=
        *(const float *)alpha != 1 || C != D || (uintptr_t)A % 16 || (uintptr_t)B % 16;
    multiply(d, A, of_layout(a), B, of_layout(b), *(const float *)beta, D, of_layout(out));
    return CUBLAS_STATUS_SUCCESS;
}
#endif
