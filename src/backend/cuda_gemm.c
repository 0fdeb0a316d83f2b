/* Matrix products through cuBLASLt. Its heuristic is asked once a shape and kept; the height of an
 * expert's product changes with every batch, so heights share one answer over an eighth. */
#include "config.h"
#include "backend/cuda.h"
#include "base/memory.h"
#include "mxfp8_scales.h"
#include <string.h>

enum { ENTRIES = 4096 };

struct key {
    int ta, tb, M, N, K, c_fp32, accumulates, a_align, b_align, c_align;
    int sms;   /* multiprocessors to be used; 0: all */
    int mxfp8; /* 1: a and b are in MXFP8 */
};

/* With MXFP8 and their scales, else NULL. */
struct operands {
    const void *a, *b;
    const uint8_t *a_scales, *b_scales;
};

struct entry {
    int used;
    struct key key;
    cublasLtMatmulAlgo_t algo;
};

struct cuda_gemm {
    cublasLtHandle_t handle;
    char *workspaces; /* [CUDA_WAYS] of CUDA_WORKSPACE bytes */
    struct entry entries[ENTRIES];
    int n;
};

static void lt_check(cublasStatus_t status, const char *what) {
    if (status != CUBLAS_STATUS_SUCCESS)
        die("cuBLASLt: %s: %s", what, cublasLtGetStatusString(status));
}

/* Bytes to which p is aligned, of those that matter. */
static int alignment(const void *p) {
    uintptr_t at = (uintptr_t)p;
    return at % 256 == 0 ? 256 : at % 16 == 0 ? 16 : at % 8 == 0 ? 8 : at % 4 == 0 ? 4 : 2;
}

/* n, or the end of its eighth between two powers of two. */
static int rounded(int n) {
    int unit = 1;
    while (unit * 16 <= n) unit *= 2;
    return (n + unit - 1) / unit * unit;
}

/* A call as cuBLASLt sees it, column-major: c^T = b^T a^T. */
struct call {
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
};

static cublasLtMatrixLayout_t layout(cudaDataType_t type, int rows, int cols) {
    cublasLtMatrixLayout_t l;
    lt_check(cublasLtMatrixLayoutCreate(&l, type, (uint64_t)cols, (uint64_t)rows, cols), "layout");
    return l;
}

/* cuBLASLt's A is b: the scales of one are those of the other. Since CUDA 12.8. */
#if CUBLAS_VERSION >= 120800
enum { HAS_MXFP8 = 1 };
static void give_scales(cublasLtMatmulDesc_t op, const struct operands *o) {
    int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    const struct {
        cublasLtMatmulDescAttributes_t mode, pointer;
        const uint8_t *scales;
    } of[] = {
        {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, o->b_scales},
        {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, o->a_scales}};
    for (int i = 0; i < 2; i++) {
        lt_check(cublasLtMatmulDescSetAttribute(op, of[i].mode, &mode, sizeof mode), "scale mode");
        lt_check(
            cublasLtMatmulDescSetAttribute(op, of[i].pointer, &of[i].scales, sizeof of[i].scales),
            "scales");
    }
}
#else
enum { HAS_MXFP8 = 0 };
static void give_scales(cublasLtMatmulDesc_t op, const struct operands *o) {
    (void)op;
    (void)o;
}
#endif

static struct call call_open(enum real real, const struct key *k, const struct operands *o) {
    struct call c;
    cudaDataType_t whole = real == REAL_BF16 ? CUDA_R_16BF : CUDA_R_32F,
                   in = k->mxfp8 ? CUDA_R_8F_E4M3 : whole, out = k->c_fp32 ? CUDA_R_32F : whole;
    cublasOperation_t ta = k->ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                      tb = k->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    lt_check(cublasLtMatmulDescCreate(&c.op, CUBLAS_COMPUTE_32F, CUDA_R_32F), "descriptor");
    lt_check(cublasLtMatmulDescSetAttribute(c.op, CUBLASLT_MATMUL_DESC_TRANSA, &tb, sizeof tb),
             "op");
    lt_check(cublasLtMatmulDescSetAttribute(c.op, CUBLASLT_MATMUL_DESC_TRANSB, &ta, sizeof ta),
             "op");
    if (k->sms > 0)
        lt_check(cublasLtMatmulDescSetAttribute(c.op, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &k->sms,
                                                sizeof k->sms),
                 "multiprocessors");
    if (k->mxfp8) give_scales(c.op, o);
    c.b = k->ta ? layout(in, k->K, k->M) : layout(in, k->M, k->K);
    c.a = k->tb ? layout(in, k->N, k->K) : layout(in, k->K, k->N);
    c.c = layout(out, k->M, k->N);
    return c;
}

static void call_close(struct call *c) {
    cublasLtMatmulDescDestroy(c->op);
    cublasLtMatrixLayoutDestroy(c->a);
    cublasLtMatrixLayoutDestroy(c->b);
    cublasLtMatrixLayoutDestroy(c->c);
}

/* What the heuristic proposes first; 0: nothing. */
static int ask(struct cuda_gemm *g, enum real real, const struct key *k, const struct operands *o,
               cublasLtMatmulAlgo_t *algo) {
    struct call c = call_open(real, k, o);
    cublasLtMatmulPreference_t p;
    cublasLtMatmulHeuristicResult_t result;
    size_t workspace = CUDA_WORKSPACE;
    uint32_t a = (uint32_t)k->b_align, b = (uint32_t)k->a_align, out = (uint32_t)k->c_align;
    int n = 0;
    lt_check(cublasLtMatmulPreferenceCreate(&p), "preference");
    lt_check(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &workspace, sizeof workspace),
             "workspace");
    const struct {
        cublasLtMatmulPreferenceAttributes_t which;
        const uint32_t *value;
    } aligned[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out}};
    for (int i = 0; i < 4; i++)
        lt_check(cublasLtMatmulPreferenceSetAttribute(p, aligned[i].which, aligned[i].value,
                                                      sizeof *aligned[i].value),
                 "alignment");
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(g->handle, c.op, c.a, c.b, c.c, c.c, p, 1, &result, &n);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED)
        n = 0;
    else
        lt_check(status, "heuristic");
    cublasLtMatmulPreferenceDestroy(p);
    call_close(&c);
    if (n > 0) *algo = result.algo;
    return n > 0;
}

static const cublasLtMatmulAlgo_t *find(struct cuda_gemm *g, enum real real, const struct key *k,
                                        const struct operands *o) {
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < sizeof *k; i++)
        hash = (hash ^ ((const unsigned char *)k)[i]) * 1099511628211u;
    size_t at = hash % ENTRIES;
    while (g->entries[at].used && memcmp(&g->entries[at].key, k, sizeof *k) != 0)
        at = (at + 1) % ENTRIES;
    struct entry *e = &g->entries[at];
    if (e->used) return &e->algo;
    if (g->n++ == ENTRIES / 2) { /* begin anew rather than search for ever */
        memset(g->entries, 0, sizeof g->entries);
        g->n = 1;
        e = &g->entries[hash % ENTRIES];
    }
    if (!ask(g, real, k, o, &e->algo))
        die("cuBLASLt has no algorithm for a product of %d x %d x %d%s", k->M, k->N, k->K,
            k->mxfp8 ? " in MXFP8; precision.emulate=true needs none" : "");
    e->key = *k, e->used = 1;
    return &e->algo;
}

static cublasStatus_t run(struct cuda_state *s, int way, const struct key *k,
                          const cublasLtMatmulAlgo_t *algo, const struct operands *o, float beta,
                          void *out) {
    const float one = 1;
    struct cuda_gemm *g = s->gemm;
    struct call c = call_open(s->real, k, o);
    cublasStatus_t status =
        cublasLtMatmul(g->handle, c.op, &one, o->b, c.a, o->a, c.b, &beta, out, c.c, out, c.c, algo,
                       g->workspaces + (size_t)way * CUDA_WORKSPACE, CUDA_WORKSPACE,
                       way ? s->sides[way - 1] : s->stream);
    call_close(&c);
    return status;
}

/* On a side (way > 0) it is an expert's: its tokens are the height, or with `ragged` the depth. */
static void product(struct backend *be, int way, struct key exact, int ragged,
                    const struct operands *o, float beta, void *c) {
    struct cuda_state *s = cuda_state(be);
    cudaStream_t stream = way ? s->sides[way - 1] : s->stream;
    size_t bytes =
        (size_t)exact.M * (size_t)exact.N * (exact.c_fp32 ? sizeof(float) : be->real_bytes);
    struct key near = exact;
    if (exact.M == 0 || exact.N == 0) return;
    if (exact.K == 0) {
        if (beta == 0) cuda_check(cudaMemsetAsync(c, 0, bytes, stream));
        return;
    }
    if (way) {
        if (ragged)
            near.K = rounded(exact.K);
        else
            near.M = rounded(exact.M);
    }
    if (run(s, way, &exact, find(s->gemm, s->real, &near, o), o, beta, c) == CUBLAS_STATUS_SUCCESS)
        return;
    (void)cudaGetLastError(); /* an algorithm for a rounded height may not serve the exact one */
    lt_check(run(s, way, &exact, find(s->gemm, s->real, &exact, o), o, beta, c), "matrix product");
}

void cuda_gemm(struct backend *be, int way, int ta, int tb, int M, int N, int K, const void *a,
               const void *b, float beta, void *c, int c_fp32) {
    struct key key = {.ta = ta,
                      .tb = tb,
                      .M = M,
                      .N = N,
                      .K = K,
                      .c_fp32 = c_fp32,
                      .accumulates = beta != 0,
                      .a_align = alignment(a),
                      .b_align = alignment(b),
                      .c_align = alignment(c),
                      .sms = cuda_state(be)->product_sms};
    product(be, way, key, /*ragged=*/ta, &(struct operands){.a = a, .b = b}, beta, c);
}

static struct key mxfp8_key(const struct backend *be, int M, int N, int K, const struct operands *o,
                            float beta, const void *c, int c_fp32) {
    return (struct key){.ta = CUDA_NO_TRANSPOSE,
                        .tb = CUDA_TRANSPOSE,
                        .M = M,
                        .N = N,
                        .K = K,
                        .c_fp32 = c_fp32,
                        .accumulates = beta != 0,
                        .a_align = alignment(o->a),
                        .b_align = alignment(o->b),
                        .c_align = alignment(c),
                        .sms = cuda_state(be)->product_sms,
                        .mxfp8 = 1};
}

static struct operands mxfp8_operands(struct mxfp8_matrix a, struct mxfp8_matrix b) {
    return (struct operands){
        .a = a.codes, .b = b.codes, .a_scales = a.scales, .b_scales = b.scales};
}

void cuda_gemm_mxfp8(struct backend *be, int way, int M, int N, int K, struct mxfp8_matrix a,
                     struct mxfp8_matrix b, float beta, void *c, int c_fp32) {
    struct operands o = mxfp8_operands(a, b);
    product(be, way, mxfp8_key(be, M, N, K, &o, beta, c, c_fp32), /*ragged=*/c_fp32, &o, beta, c);
}

int cuda_gemm_has_mxfp8(void) {
    return HAS_MXFP8;
}

int cuda_gemm_mxfp8_serves(struct backend *be, int M, int N, int K, struct mxfp8_matrix a,
                           struct mxfp8_matrix b, void *c, int c_fp32) {
    struct operands o = mxfp8_operands(a, b);
    struct key key = mxfp8_key(be, M, N, K, &o, /*beta=*/0, c, c_fp32);
    cublasLtMatmulAlgo_t algo;
    return HAS_MXFP8 && ask(cuda_state(be)->gemm, cuda_state(be)->real, &key, &o, &algo);
}

void cuda_fork(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    cuda_check(cudaEventRecord(s->forked, s->stream));
    for (int i = 0; i < CUDA_SIDES; i++) cuda_check(cudaStreamWaitEvent(s->sides[i], s->forked, 0));
}

void cuda_join(struct backend *be) {
    struct cuda_state *s = cuda_state(be);
    for (int i = 0; i < CUDA_SIDES; i++) {
        cuda_check(cudaEventRecord(s->joined[i], s->sides[i]));
        cuda_check(cudaStreamWaitEvent(s->stream, s->joined[i], 0));
    }
}

void cuda_gemm_open(struct backend *be) {
    struct cuda_gemm *g = cuda_state(be)->gemm = memory_alloc(sizeof *g);
    lt_check(cublasLtCreate(&g->handle), "create");
    g->workspaces =
        be->alloc(be, cuda_rooms_of(NULL, be->real_bytes, 0).bytes[CUDA_ROOM_WORKSPACES]);
}

void cuda_gemm_close(struct backend *be) {
    struct cuda_gemm *g = cuda_state(be)->gemm;
    be->release(be, g->workspaces);
    cublasLtDestroy(g->handle);
    memory_free(g);
}
