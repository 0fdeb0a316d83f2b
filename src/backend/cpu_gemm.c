/* Matrix products: CBLAS where configure found one, plain loops otherwise. CBLAS runs on one
 * thread; rows or columns are shared out here, so that the same number of threads gives the same
 * bits with any library, and so that products may be called from within a parallel loop. */
#include "config.h"
#include "backend/cpu.h"
#include "base/memory.h"
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef HAVE_CBLAS
#include <cblas.h>
#ifdef HAVE_BLI_THREAD_SET_NUM_THREADS
void bli_thread_set_num_threads(long n); /* in blis.h, which collides with cblas.h */
#endif
#endif

char *cpu_gemm_name(void) {
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
    /* "OpenBLAS 0.3.21 NO_AFFINITY ...": the first two words */
    const char *all = openblas_get_config(), *space = strchr(all, ' ');
    return memory_format("%.*s", (int)(space ? space + 1 + strcspn(space + 1, " ") - all : 32),
                         all);
#elif defined HAVE_CBLAS
    return memory_string(BLAS_KIND);
#else
    return memory_string("plain loops");
#endif
}

void cpu_gemm_open(void) {
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
    openblas_set_num_threads(1);
#elif defined HAVE_BLI_THREAD_SET_NUM_THREADS
    bli_thread_set_num_threads(1);
#endif
}

#ifdef HAVE_CBLAS
void cpu_gemm_serial(enum transpose ta, enum transpose tb, int M, int N, int K, float alpha,
                     const float *a, int lda, const float *b, int ldb, float beta, float *c,
                     int ldc) {
    if (M == 0 || N == 0) return;
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, M, N,
                K, alpha, a, lda, b, ldb, beta, c, ldc);
}
#else
/* Row i of c gathers rows of b (or dot products with them), so that the inner loop runs along
 * memory. */
void cpu_gemm_serial(enum transpose ta, enum transpose tb, int M, int N, int K, float alpha,
                     const float *a, int lda, const float *b, int ldb, float beta, float *c,
                     int ldc) {
    for (int i = 0; i < M; i++) {
        float *row = c + (size_t)i * (size_t)ldc;
        for (int j = 0; j < N; j++) row[j] = beta == 0 ? 0 : beta * row[j];
        if (tb == TRANSPOSE && ta == NO_TRANSPOSE) {
            for (int j = 0; j < N; j++) {
                const float *x = a + (size_t)i * (size_t)lda, *y = b + (size_t)j * (size_t)ldb;
                float sum = 0;
#pragma omp simd reduction(+ : sum)
                for (int k = 0; k < K; k++) sum += x[k] * y[k];
                row[j] += alpha * sum;
            }
            continue;
        }
        for (int k = 0; k < K; k++) {
            float x = alpha * (ta ? a[(size_t)k * (size_t)lda + (size_t)i]
                                  : a[(size_t)i * (size_t)lda + (size_t)k]);
            if (tb == TRANSPOSE)
                for (int j = 0; j < N; j++) row[j] += x * b[(size_t)j * (size_t)ldb + (size_t)k];
            else
                for (int j = 0; j < N; j++) row[j] += x * b[(size_t)k * (size_t)ldb + (size_t)j];
        }
    }
}
#endif

void cpu_gemm(enum transpose ta, enum transpose tb, int M, int N, int K, float alpha,
              const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc) {
#pragma omp parallel if (cpu_worth((size_t)M * (size_t)N, (size_t)K))
    {
#ifdef _OPENMP
        int n = omp_get_num_threads(), i = omp_get_thread_num();
#else
        int n = 1, i = 0;
#endif
        int columns = M < n;
        long long all = columns ? N : M;
        int first = (int)(all * i / n), last = (int)(all * (i + 1) / n);
        size_t at = (size_t)first;
        if (columns)
            cpu_gemm_serial(ta, tb, M, last - first, K, alpha, a, lda,
                            tb ? b + at * (size_t)ldb : b + at, ldb, beta, c + at, ldc);
        else
            cpu_gemm_serial(ta, tb, last - first, N, K, alpha, ta ? a + at : a + at * (size_t)lda,
                            lda, b, ldb, beta, c + at * (size_t)ldc, ldc);
    }
}
