/* The CPU backend, within itself: each file fills its part of the table. */
#ifndef REGULON_BACKEND_CPU_H
#define REGULON_BACKEND_CPU_H
#include "backend/backend.h"

void cpu_open(struct backend *be);

/* Allocation, copies, and the buffers below; n_threads may ask for scratch. */
void cpu_memory_open(struct backend *be, int n_threads);
void cpu_memory_close(struct backend *be);

void cpu_fill_dense(struct backend *be);     /* embedding, norms, products */
void cpu_fill_attention(struct backend *be); /* RoPE and attention */
void cpu_fill_route(struct backend *be);
void cpu_fill_exchange(struct backend *be); /* dispatch and combine */
void cpu_fill_experts(struct backend *be);
void cpu_fill_head(struct backend *be);
void cpu_fill_optimizer(struct backend *be);
void cpu_fill_collectives(struct backend *be);

/* Whether n times `each` operations are worth sharing out: waking the threads costs microseconds,
 * and much more where there are fewer processors than threads. */
static inline int cpu_worth(size_t n, size_t each) {
    return (double)n * (double)each >= 1 << 18;
}

enum transpose { NO_TRANSPOSE, TRANSPOSE };

/* c[M, N] = alpha a b + beta c, where a is [M, K] (or [K, M] transposed) and b [K, N] (or [N, K]
 * transposed); lda, ldb, ldc are row strides. One thread; thread-safe. */
void cpu_gemm_serial(enum transpose ta, enum transpose tb, int M, int N, int K, float alpha,
                     const float *a, int lda, const float *b, int ldb, float beta, float *c,
                     int ldc);
/* The same with the rows of c shared out over the threads or, where they are fewer, the columns. */
void cpu_gemm(enum transpose ta, enum transpose tb, int M, int N, int K, float alpha,
              const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
/* At least n floats for the calling thread, valid until it asks again; grows at the first steps,
 * then stays. */
float *cpu_scratch(struct backend *be, size_t n);
/* table[n or more, K]: for each position K/2 cosines, then K/2 sines, of position * theta^(-2j/K).
 * Kept until K or theta change or more positions are asked for. Main thread. */
const float *cpu_rope_table(struct backend *be, int K, double theta, int n);

/* What `documents` was called with last; borrowed. */
const int32_t *cpu_documents(struct backend *be, int *n);

void cpu_gemm_open(void); /* tells the library to use one thread: rows are shared out by cpu_gemm */
char *cpu_gemm_name(void); /* "OpenBLAS 0.3.21", "plain loops"; the caller frees it */

/* What the buffers above and below grow to at most, in bytes: of a thread, of all, of each exchange
 * buffer, of each rounded operand. Attention's scratch has 2 CPU_QUERIES rows of the longest
 * document, the head's CPU_CHUNK rows of V. A gathered tensor passes through an exchange buffer,
 * too: the caller's to count. */
enum { CPU_QUERIES = 64, CPU_CHUNK = 512 };
enum rounded_buffer { ROUNDED_A, ROUNDED_B, N_ROUNDED_BUFFERS };
struct cpu_rooms {
    size_t scratch, rope, exchange, rounded[N_ROUNDED_BUFFERS];
};
struct cpu_rooms cpu_rooms_of(const struct work *w, int ep_size);
size_t cpu_alloc_bytes(size_t bytes); /* what an allocation of these bytes takes */

/* The product c = a b + beta c as cpu_gemm's, of activations or gradients, a, and of weights, or
 * the activations of a gradient of weights, b, rounded as be->low has them: see cpu_low.c. Main
 * thread. */
void cpu_product(struct backend *be, enum transpose ta, enum transpose tb, int M, int N, int K,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
void cpu_fill_low(struct backend *be);
/* z[rows, 2F] as low_z has it kept. */
void cpu_round_z(struct backend *be, float *z, int rows, int F);
/* At least n floats; grows in the first steps, then stays. Main thread. */
float *cpu_rounded_buffer(struct backend *be, enum rounded_buffer which, size_t n);

/* x[D] as it travels with low_rows: to low_row_bytes(D) bytes (low_row.h) at a multiple of 4, and
 * back. */
void cpu_low_row_write(void *to, const float *x, int D);
void cpu_low_row_read(float *x, const void *from, int D);
/* The same at once: row[D] is what x[D] becomes. */
void cpu_low_row_round(float *row, const float *x, int D);

enum exchange_buffer { SEND_BUFFER, RECEIVE_BUFFER, N_EXCHANGE_BUFFERS };
/* At least n floats, shared by all layers; grows at the first steps, then stays. Main thread. */
float *cpu_exchange_buffer(struct backend *be, enum exchange_buffer which, size_t n);

/* Local experts' stretches of the rows that moe_dispatch laid out: expert e has rows offsets[e] to
 * offsets[e + 1] - 1; row_p[R] is each row's probability. */
struct moe_rows {
    int n_local;         /* experts of this rank */
    size_t base, z_base; /* where they begin among the rows, and in z */
    struct moe_shape shape;
    const int *offsets;
    const float *row_p;
};
struct moe_rows cpu_moe_rows(const struct moe *m);
#endif
