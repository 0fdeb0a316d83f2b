/* Causal grouped-query attention within documents, and RoPE. Scores are made for CPU_QUERIES
 * queries at a time and only up to the last key they see; the backward pass makes them again from
 * lse (Dao et al. 2022, algorithm 4). */
#include "config.h"
#include "backend/cpu.h"
#include "backend/cpu_exp.h"
#include "base/memory.h"
#include <math.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static void rope(struct backend *be, real_t *qkv, const int32_t *positions,
                 struct attention_shape s, double theta, int N, int inverse) {
    int half = s.K / 2, heads = s.H + s.G, last = 0;
    size_t stride = (size_t)(s.H + 2 * s.G) * (size_t)s.K;
    for (int i = 0; i < N; i++) last = positions[i] > last ? positions[i] : last;
    const float *table = cpu_rope_table(be, s.K, theta, last + 1);
#pragma omp parallel for if (cpu_worth((size_t)N, stride))
    for (int i = 0; i < N; i++) {
        const float *cosine = table + (size_t)positions[i] * (size_t)s.K, *sine = cosine + half;
        float *x = (float *)qkv + (size_t)i * stride, sign = inverse ? -1 : 1;
        for (int h = 0; h < heads; h++, x += s.K)
            for (int j = 0; j < half; j++) {
                float a = x[j], b = x[half + j], c = cosine[j], d = sign * sine[j];
                x[j] = a * c - b * d;
                x[half + j] = b * c + a * d;
            }
    }
}

/* One document, one head: keys of positions [0, T), queries of [past, T); q points to the first of
 * them. Row strides in floats. */
struct head {
    const float *q, *k, *v;
    int stride, kv_stride, past, T, K, window; /* stride: of q */
    float scale;
};

/* Keys [first, last) that some query of [q0, q1) sees. */
static int first_key(const struct head *h, int q0) {
    return h->window && q0 - h->window + 1 > 0 ? q0 - h->window + 1 : 0;
}

/* scores[q1 - q0, last - first] = scale q k^T, -inf where a query does not see a key */
static void make_scores(const struct head *h, int q0, int q1, int first, float *scores) {
    int n = q1 - first;
    cpu_gemm_serial(NO_TRANSPOSE, TRANSPOSE, q1 - q0, n, h->K, h->scale,
                    h->q + (size_t)(q0 - h->past) * (size_t)h->stride, h->stride,
                    h->k + (size_t)first * (size_t)h->kv_stride, h->kv_stride, 0, scores, n);
    for (int i = q0; i < q1; i++) {
        float *row = scores + (size_t)(i - q0) * (size_t)n;
        for (int j = i + 1; j < q1; j++) row[j - first] = -INFINITY;
        if (h->window)
            for (int j = first; j <= i - h->window; j++) row[j - first] = -INFINITY;
    }
}

/* out and lse are those of the first query. */
static void forward_head(const struct head *h, float *out, int out_stride, float *lse,
                         int lse_stride, float *scores) {
    for (int q0 = h->past; q0 < h->T; q0 += CPU_QUERIES) {
        int q1 = q0 + CPU_QUERIES < h->T ? q0 + CPU_QUERIES : h->T, first = first_key(h, q0),
            n = q1 - first;
        size_t row0 = (size_t)(q0 - h->past);
        make_scores(h, q0, q1, first, scores);
        for (int i = 0; i < q1 - q0; i++) {
            float *row = scores + (size_t)i * (size_t)n, most = -INFINITY, sum = 0;
#pragma omp simd reduction(max : most)
            for (int j = 0; j < n; j++) most = row[j] > most ? row[j] : most;
#pragma omp simd reduction(+ : sum)
            for (int j = 0; j < n; j++) {
                float e = cpu_exp(row[j] - most);
                row[j] = e;
                sum += e;
            }
            float inverse = 1 / sum;
            for (int j = 0; j < n; j++) row[j] *= inverse;
            lse[(row0 + (size_t)i) * (size_t)lse_stride] = most + logf(sum);
        }
        cpu_gemm_serial(NO_TRANSPOSE, NO_TRANSPOSE, q1 - q0, h->K, n, 1, scores, n,
                        h->v + (size_t)first * (size_t)h->kv_stride, h->kv_stride, 0,
                        out + row0 * (size_t)out_stride, out_stride);
    }
}

/* dq overwritten; dk and dv accumulated (several heads share them). scores and dscores: scratch. */
static void backward_head(const struct head *h, const float *out, const float *dout, int out_stride,
                          const float *lse, int lse_stride, float *dq, float *dk, float *dv,
                          float *scores, float *dscores) {
    for (int q0 = 0; q0 < h->T; q0 += CPU_QUERIES) {
        int q1 = q0 + CPU_QUERIES < h->T ? q0 + CPU_QUERIES : h->T, first = first_key(h, q0),
            n = q1 - first, m = q1 - q0;
        const float *d = dout + (size_t)q0 * (size_t)out_stride,
                    *o = out + (size_t)q0 * (size_t)out_stride;
        size_t keys = (size_t)first * (size_t)h->stride, queries = (size_t)q0 * (size_t)h->stride;
        make_scores(h, q0, q1, first, scores);
        cpu_gemm_serial(NO_TRANSPOSE, TRANSPOSE, m, n, h->K, 1, d, out_stride, h->v + keys,
                        h->stride, 0, dscores, n);
        for (int i = 0; i < m; i++) {
            float *row = scores + (size_t)i * (size_t)n, *drow = dscores + (size_t)i * (size_t)n,
                  dot = 0;
            float l = lse[(size_t)(q0 + i) * (size_t)lse_stride];
            const float *di = d + (size_t)i * (size_t)out_stride,
                        *oi = o + (size_t)i * (size_t)out_stride;
#pragma omp simd reduction(+ : dot)
            for (int j = 0; j < h->K; j++) dot += di[j] * oi[j];
            for (int j = 0; j < n; j++) {
                float p = cpu_exp(row[j] - l);
                row[j] = p;
                drow[j] = p * (drow[j] - dot) * h->scale;
            }
        }
        cpu_gemm_serial(TRANSPOSE, NO_TRANSPOSE, n, h->K, m, 1, scores, n, d, out_stride, 1,
                        dv + keys, h->stride);
        cpu_gemm_serial(NO_TRANSPOSE, NO_TRANSPOSE, m, h->K, n, 1, dscores, n, h->k + keys,
                        h->stride, 0, dq + queries, h->stride);
        cpu_gemm_serial(TRANSPOSE, NO_TRANSPOSE, n, h->K, m, 1, dscores, n, h->q + queries,
                        h->stride, 1, dk + keys, h->stride);
    }
}

static int longest(const int32_t *cu, int n) {
    int most = 0;
    for (int d = 0; d < n; d++)
        if (cu[d + 1] - cu[d] > most) most = cu[d + 1] - cu[d];
    return most;
}

static struct head head_of(const float *qkv, const int32_t *cu, int document, int h,
                           struct attention_shape s) {
    int stride = (s.H + 2 * s.G) * s.K, g = h / (s.H / s.G);
    const float *row = qkv + (size_t)cu[document] * (size_t)stride;
    return (struct head){.q = row + h * s.K,
                         .k = row + (s.H + g) * s.K,
                         .v = row + (s.H + s.G + g) * s.K,
                         .stride = stride,
                         .kv_stride = stride,
                         .T = cu[document + 1] - cu[document],
                         .K = s.K,
                         .window = s.window,
                         .scale = 1 / sqrtf((float)s.K)};
}

static void attention(struct backend *be, real_t *out, float *lse, const real_t *qkv,
                      struct attention_shape s) {
    int n_documents;
    const int32_t *cu = cpu_documents(be, &n_documents);
    size_t room = (size_t)CPU_QUERIES * (size_t)longest(cu, n_documents);
#pragma omp parallel
    {
        float *scores = cpu_scratch(be, room);
#pragma omp for schedule(dynamic)
        for (int task = 0; task < n_documents * s.H; task++) {
            int d = task / s.H, h = task % s.H;
            struct head one = head_of(qkv, cu, d, h, s);
            forward_head(&one, (float *)out + (size_t)cu[d] * (size_t)(s.H * s.K) + h * s.K,
                         s.H * s.K, lse + (size_t)cu[d] * (size_t)s.H + h, s.H, scores);
        }
    }
}

/* The keys and values of this document's tokens, to where those of earlier ones are. */
static void keep(const struct kept *kept, const float *qkv, const int32_t *cu, int document,
                 struct attention_shape s) {
    size_t width = 2 * (size_t)s.G * (size_t)s.K, stride = width + (size_t)s.H * (size_t)s.K;
    const float *row = qkv + (size_t)cu[document] * stride + (size_t)s.H * (size_t)s.K;
    float *to =
        (float *)kept->kv +
        ((size_t)kept->place[document] * (size_t)kept->room + (size_t)kept->past[document]) * width;
    for (int i = cu[document]; i < cu[document + 1]; i++, row += stride, to += width)
        memcpy(to, row, width * sizeof *to);
}

/* head_of with kept keys and values. */
static struct head kept_head(const struct kept *kept, const float *qkv, const int32_t *cu,
                             int document, int h, struct attention_shape s) {
    struct head one = head_of(qkv, cu, document, h, s);
    int width = 2 * s.G * s.K, g = h / (s.H / s.G);
    one.k = (const float *)kept->kv +
            (size_t)kept->place[document] * (size_t)kept->room * (size_t)width + g * s.K;
    one.v = one.k + s.G * s.K;
    one.kv_stride = width;
    one.past = kept->past[document];
    one.T += one.past;
    return one;
}

static void attention_kept(struct backend *be, real_t *out, float *lse, const real_t *qkv,
                           struct attention_shape s, struct kept kept) {
    int n_documents;
    const int32_t *cu = cpu_documents(be, &n_documents);
    size_t room = 0, pairs = 0;
    for (int d = 0; d < n_documents; d++) {
        int n = cu[d + 1] - cu[d];
        size_t scores = (size_t)(n < CPU_QUERIES ? n : CPU_QUERIES) * (size_t)(kept.past[d] + n);
        if (scores > room) room = scores;
        pairs += (size_t)n * (size_t)(kept.past[d] + n);
    }
#pragma omp parallel if (cpu_worth(pairs, (size_t)(s.H * s.K)))
    {
        float *scores = cpu_scratch(be, room);
#pragma omp for
        for (int d = 0; d < n_documents; d++) keep(&kept, qkv, cu, d, s);
#pragma omp for schedule(dynamic)
        for (int task = 0; task < n_documents * s.H; task++) {
            int d = task / s.H, h = task % s.H;
            struct head one = kept_head(&kept, qkv, cu, d, h, s);
            forward_head(&one, (float *)out + (size_t)cu[d] * (size_t)(s.H * s.K) + h * s.K,
                         s.H * s.K, lse + (size_t)cu[d] * (size_t)s.H + h, s.H, scores);
        }
    }
}

static void attention_backward(struct backend *be, real_t *dqkv, const real_t *dout,
                               const real_t *out, const float *lse, const real_t *qkv,
                               struct attention_shape s) {
    int n_documents;
    const int32_t *cu = cpu_documents(be, &n_documents);
    size_t room = (size_t)CPU_QUERIES * (size_t)longest(cu, n_documents),
           stride = (size_t)(s.H + 2 * s.G) * (size_t)s.K;
    if (n_documents) memset(dqkv, 0, (size_t)cu[n_documents] * stride * sizeof(float));
#pragma omp parallel
    {
        float *scores = cpu_scratch(be, 2 * room), *dscores = scores + room;
        /* the heads of a group share keys and values: one thread takes them in turn */
#pragma omp for schedule(dynamic)
        for (int task = 0; task < n_documents * s.G; task++) {
            int d = task / s.G, g = task % s.G;
            for (int h = g * (s.H / s.G); h < (g + 1) * (s.H / s.G); h++) {
                struct head one = head_of(qkv, cu, d, h, s);
                size_t at = (size_t)cu[d] * (size_t)(s.H * s.K) + (size_t)(h * s.K);
                float *row = (float *)dqkv + (size_t)cu[d] * stride;
                backward_head(&one, (const float *)out + at, (const float *)dout + at, s.H * s.K,
                              lse + (size_t)cu[d] * (size_t)s.H + h, s.H, row + h * s.K,
                              row + (s.H + g) * s.K, row + (s.H + s.G + g) * s.K, scores, dscores);
            }
        }
    }
}

void cpu_fill_attention(struct backend *be) {
    be->rope = rope;
    be->attention = attention;
    be->attention_kept = attention_kept;
    be->attention_backward = attention_backward;
}
