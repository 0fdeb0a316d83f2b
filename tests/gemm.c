/* Products on the CPU against their definition, shared out over four threads: many rows, and fewer
 * rows than threads, whose columns are shared out; and products too small for that. */
#include "config.h"
#include "backend/cpu.h"
#include "base/memory.h"
#include "base/random.h"
#include "tap.h"
#include <math.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static float *normal(size_t n, uint64_t stream) {
    float *x = memory_alloc_array(n, sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = random_normal(stream, RANDOM_TEST, i);
    return x;
}

/* Rows lie 3 elements further apart than they are long; what is between them must stay. */
static void check(enum transpose ta, enum transpose tb, int M, int N, int K) {
    enum { GAP = 3 };
    int lda = (ta ? M : K) + GAP, ldb = (tb ? K : N) + GAP, ldc = N + GAP;
    size_t size_c = (size_t)M * (size_t)ldc;
    float *a = normal((size_t)(ta ? K : M) * (size_t)lda, 1),
          *b = normal((size_t)(tb ? N : K) * (size_t)ldb, 2), *c = normal(size_c, 3),
          *before = normal(size_c, 3), alpha = 0.5F, beta = 2;
    cpu_gemm(ta, tb, M, N, K, alpha, a, lda, b, ldb, beta, c, ldc);
    double worst = 0;
    int touched = 0;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < ldc; j++) {
            double sum = 0;
            size_t at = (size_t)i * (size_t)ldc + (size_t)j;
            for (int k = 0; j < N && k < K; k++)
                sum += (double)(ta ? a[k * lda + i] : a[i * lda + k]) *
                       (double)(tb ? b[j * ldb + k] : b[k * ldb + j]);
            double e =
                fabs((double)c[at] - (double)alpha * sum - (double)beta * (double)before[at]);
            if (j < N && !(e <= worst)) worst = e;
            touched += j >= N && c[at] != before[at];
        }
    tap_ok(worst <= 1e-6 * K && !touched, "%s %s, %d x %d x %d: worst %.1e", ta ? "a^T" : "a",
           tb ? "b^T" : "b", M, N, K, worst);
    memory_free(a);
    memory_free(b);
    memory_free(c);
    memory_free(before);
}

int main(int argc, char **argv) {
    static const int sizes[][3] = {{1, 700, 600},  {2, 900, 301}, {3, 1001, 128}, {5, 700, 90},
                                   {150, 2, 1000}, {260, 70, 64}, {2, 3, 5}};
    tap_open(&argc, &argv);
    cpu_gemm_open();
#ifdef _OPENMP
    omp_set_num_threads(4);
#endif
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < 4; t++)
            check(t & 1 ? TRANSPOSE : NO_TRANSPOSE, t & 2 ? TRANSPOSE : NO_TRANSPOSE, sizes[i][0],
                  sizes[i][1], sizes[i][2]);
    return tap_close();
}
