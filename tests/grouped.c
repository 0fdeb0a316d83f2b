/* The grouped products of the experts by themselves, on a GPU of compute capability 9.0: entries at
 * random places against FP64, the same bits whenever and on however many multiprocessors they run,
 * nothing written where no rows are; behind others' rows in larger arrays; and with the activation
 * in passes of its own. Tiles follow each
 * other on every block here, deep ones too, which the operations of ops.np1 are too small for. */
#include "config.h"
#include "grouped.h"
#include "grouped_gemm.h"
#include "swiglu.h"

/* Without spare rows the second half of the last tile may lie outside of the arrays. */
static const struct round rounds[] = {
    {8, 1024, 768, 9000, "balanced", 128}, {3, 2048, 320, 7000, "half", 64},
    {64, 512, 192, 8000, "skew:1", 0},     {256, 128, 64, 3000, "skew:1", 128},
    {1, 640, 704, 2500, "one", 0},         {5, 320, 640, 4000, "empty", 128},
    {8, 64, 64, 100, "one", 128},          {2, 4096, 256, 300, "balanced", 0}};

enum { SAMPLES = 3000, ROWS_SAMPLED = 40 };

enum { X, DY, UP, DOWN, P, Z, H, Y, DX, DZ, H2, DP, DW_UP, DW_DOWN, PARTS, OFFSETS, N_ARRAYS };
enum { FIRST_RESULT = Z, LAST_RESULT = DW_DOWN };

struct test {
    struct round r;
    struct grouped *kernels;
    int32_t *offsets;
    int64_t *counts;
    size_t R; /* rows with those that pad */
    struct both a[N_ARRAYS];
    char *stash[N_ARRAYS]; /* of X, Z, DZ: on the device, `before` rows of others and then these;
                              NULL: they are in the arrays above */
    int apart;             /* activation and its gradient in passes of their own */
    int32_t *bases;        /* [2] on the device: before_x, before_z */
    uint64_t seed;
};
enum { BEFORE_X = 192, BEFORE_Z = 448 };

static void open_round(struct test *t) {
    t->R = lay_out_rows(t->r, GROUPED_ROWS, &t->counts, &t->offsets);
    size_t R = t->R + (size_t)t->r.spare, D = (size_t)t->r.D, F = (size_t)t->r.F,
           E = (size_t)t->r.E, h = 2;
    const size_t bytes[N_ARRAYS] = {[X] = R * D * h,
                                    [DY] = R * D * h,
                                    [UP] = E * 2 * F * D * h,
                                    [DOWN] = E * D * F * h,
                                    [P] = R * 4,
                                    [Z] = R * 2 * F * h,
                                    [H] = R * F * h,
                                    [Y] = R * D * h,
                                    [DX] = R * D * h,
                                    [DZ] = R * 2 * F * h,
                                    [H2] = R * F * h,
                                    [DP] = R * 4,
                                    [DW_UP] = E * 2 * F * D * 4,
                                    [DW_DOWN] = E * D * F * 4,
                                    [PARTS] = grouped_parts(R, t->r.F),
                                    [OFFSETS] = (E + 1) * 4};
    for (int k = 0; k < N_ARRAYS; k++) t->a[k] = both_new(bytes[k]);
    memcpy(t->a[OFFSETS].host, t->offsets, bytes[OFFSETS]);
    both_fill(t->a[X], t->R * D, 1, ++t->seed);
    both_fill(t->a[DY], t->R * D, 1, ++t->seed);
    both_fill(t->a[UP], E * 2 * F * D, 1 / sqrtf((float)D), ++t->seed);
    both_fill(t->a[DOWN], E * D * F, 1 / sqrtf((float)F), ++t->seed);
    zero_pads(t->a[X], t->r, t->counts, t->offsets, D * h);
    zero_pads(t->a[DY], t->r, t->counts, t->offsets, D * h);
    float *p = t->a[P].host;
    for (size_t i = 0; i < R; i++) p[i] = (float)random_uniform(5, RANDOM_TEST, i);
    for (int k = X; k <= P; k++) both_put(t->a[k]);
    both_put(t->a[OFFSETS]);
}

static void close_round(struct test *t) {
    for (int k = 0; k < N_ARRAYS; k++) both_free(t->a[k]);
    memory_free(t->offsets);
    memory_free(t->counts);
}

static void *device(const struct test *t, int k) {
    return t->stash[k] ? t->stash[k] : t->a[k].device;
}

/* Bytes of the rows before those of X, Z or DZ in the stash. */
static size_t before(const struct test *t, int k) {
    return (k == X ? (size_t)BEFORE_X * (size_t)t->r.D : (size_t)BEFORE_Z * 2 * (size_t)t->r.F) * 2;
}

static void run_up(struct test *t, struct grouped_rows r) {
    struct both *a = t->a;
    int D = t->r.D, F = t->r.F;
    const int32_t *last = r.offsets + r.E;
    if (!t->apart) {
        grouped_up(t->kernels, device(t, Z), a[H].device, device(t, X), a[UP].device, a[P].device,
                   r, D, F, 0);
        return;
    }
    grouped_forward(t->kernels, a[Z].device, a[X].device, a[UP].device, r, 2 * F, D, 0);
    swiglu_forward(REAL_BF16, a[H].device, a[Z].device, a[P].device, r.rows, last, F, 0);
}

static void run_down_backward(struct test *t, struct grouped_rows r) {
    struct both *a = t->a;
    int D = t->r.D, F = t->r.F;
    const int32_t *last = r.offsets + r.E;
    if (!t->apart) {
        grouped_down_backward(t->kernels, device(t, DZ), a[H2].device, a[DP].device,
                              a[PARTS].device, a[DY].device, device(t, Z), a[DOWN].device,
                              a[P].device, r, D, F, 0);
        return;
    }
    grouped_backward(t->kernels, a[H2].device, a[DY].device, a[DOWN].device, r, D, F, 0);
    swiglu_backward(REAL_BF16, a[DZ].device, a[DP].device, a[H2].device, a[H2].device, a[Z].device,
                    a[P].device, r.rows, last, F, 0);
}

static void weights_up(struct test *t, struct gradient dw, struct grouped_rows r) {
    grouped_weights(t->kernels, dw, device(t, DZ), device(t, X), r, 2 * t->r.F, t->r.D, 0);
}

static void weights_down(struct test *t, struct gradient dw, struct grouped_rows r) {
    r.x = r.z = (struct grouped_place){0}; /* neither operand is one of the stash */
    grouped_weights(t->kernels, dw, t->a[DY].device, t->a[H2].device, r, t->r.D, t->r.F, 0);
}

/* All products on so many multiprocessors, results poisoned first; weights' gradients twice, the
 * second time added. Results are then on the host. */
static void run(struct test *t, int multiprocessors) {
    struct grouped_rows r = {.offsets = t->a[OFFSETS].device,
                             .E = t->r.E,
                             .rows = (int)t->R + t->r.spare,
                             .multiprocessors = multiprocessors};
    if (t->bases) {
        r.x = (struct grouped_place){t->bases, BEFORE_X + r.rows};
        r.z = (struct grouped_place){t->bases + 1, BEFORE_Z + r.rows};
    }
    struct both *a = t->a;
    int D = t->r.D, F = t->r.F;
    for (int k = FIRST_RESULT; k <= LAST_RESULT; k++)
        cuda(cudaMemset(device(t, k), 0xff, a[k].bytes + (t->stash[k] ? before(t, k) : 0)));
    run_up(t, r);
    grouped_forward(t->kernels, a[Y].device, a[H].device, a[DOWN].device, r, D, F, 0);
    run_down_backward(t, r);
    grouped_backward(t->kernels, a[DX].device, device(t, DZ), a[UP].device, r, 2 * F, D, 0);
    for (int add = 0; add < 2; add++) {
        weights_up(t, gradient_whole(a[DW_UP].device, add), r);
        weights_down(t, gradient_whole(a[DW_DOWN].device, add), r);
    }
    for (int k = FIRST_RESULT; k <= LAST_RESULT; k++)
        if (t->stash[k])
            cuda(cudaMemcpy(a[k].device, t->stash[k] + before(t, k), a[k].bytes,
                            cudaMemcpyDeviceToDevice));
    cuda(cudaDeviceSynchronize());
    for (int k = FIRST_RESULT; k <= LAST_RESULT; k++) both_get(t->a[k]);
}

/* ---- against FP64 ---- */

static double value(const struct test *t, int k, size_t i) {
    return to_float(((const half_t *)t->a[k].host)[i]);
}

static int expert_of(const struct test *t, size_t row) {
    int e = 0;
    while (row >= (size_t)t->offsets[e + 1]) e++;
    return e;
}

/* sum over n of a[i + j step_a] b[k + j step_b] */
static double dot(const struct test *t, int a, size_t i, size_t step_a, int b, size_t k,
                  size_t step_b, size_t n) {
    double sum = 0;
    for (size_t j = 0; j < n; j++) sum += value(t, a, i + j * step_a) * value(t, b, k + j * step_b);
    return sum;
}

static size_t draw(struct test *t, size_t below) {
    return (size_t)(random_bits(9, RANDOM_TEST, t->seed++) % below);
}

/* The results by rows, at random places; h and dz from the z that the device has. */
static void check_rows(struct test *t) {
    size_t D = (size_t)t->r.D, F = (size_t)t->r.F;
    struct error z = {0, 0}, h = z, y = z, dx = z, dz = z, h2 = z;
    const float *p = t->a[P].host;
    for (int s = 0; s < SAMPLES; s++) {
        size_t row = draw(t, t->R), f = draw(t, F), d = draw(t, D), e = (size_t)expert_of(t, row);
        double gate = value(t, Z, row * 2 * F + f), up = value(t, Z, row * 2 * F + F + f),
               sigmoid = 1 / (1 + exp(-gate)), a = gate * sigmoid * up,
               dh = dot(t, DY, row * D, 1, DOWN, e * D * F + f, F, D);
        note(&z, gate, dot(t, X, row * D, 1, UP, (e * 2 * F + f) * D, 1, D));
        note(&z, up, dot(t, X, row * D, 1, UP, (e * 2 * F + F + f) * D, 1, D));
        note(&h, value(t, H, row * F + f), p[row] * a);
        note(&h2, value(t, H2, row * F + f), p[row] * a);
        note(&y, value(t, Y, row * D + d), dot(t, H, row * F, 1, DOWN, (e * D + d) * F, 1, F));
        note(&dz, value(t, DZ, row * 2 * F + f),
             p[row] * dh * up * sigmoid * (1 + gate * (1 - sigmoid)));
        note(&dz, value(t, DZ, row * 2 * F + F + f), p[row] * dh * gate * sigmoid);
        note(&dx, value(t, DX, row * D + d),
             dot(t, DZ, row * 2 * F, 1, UP, e * 2 * F * D + d, D, 2 * F));
    }
    double worst = fmax(fmax(fmax(relative(&z), relative(&h)), fmax(relative(&y), relative(&dx))),
                        fmax(relative(&dz), relative(&h2)));
    tap_ok(worst < 6e-3, "E %d, D %d, F %d, %s%s: rows against FP64: %.1e", t->r.E, t->r.D, t->r.F,
           t->r.routing, t->apart ? ", not fused" : "", worst);
}

static void check_dp(struct test *t) {
    size_t D = (size_t)t->r.D, F = (size_t)t->r.F;
    struct error dp = {0, 0};
    for (int s = 0; s < ROWS_SAMPLED; s++) {
        size_t row = draw(t, t->R), e = (size_t)expert_of(t, row);
        double sum = 0;
        for (size_t f = 0; f < F; f++) {
            double gate = value(t, Z, row * 2 * F + f), up = value(t, Z, row * 2 * F + F + f);
            sum += dot(t, DY, row * D, 1, DOWN, e * D * F + f, F, D) * gate / (1 + exp(-gate)) * up;
        }
        note(&dp, ((const float *)t->a[DP].host)[row], sum);
    }
    tap_ok(relative(&dp) < 6e-3, "E %d, D %d, F %d, %s: dp against FP64: %.1e", t->r.E, t->r.D,
           t->r.F, t->r.routing, relative(&dp));
}

/* Twice the product, since it was added once; zeros where an expert has no rows. */
static void check_weights(struct test *t) {
    size_t D = (size_t)t->r.D, F = (size_t)t->r.F;
    struct error up = {0, 0}, down = {0, 0};
    for (int s = 0; s < SAMPLES; s++) {
        size_t e = draw(t, (size_t)t->r.E), f = draw(t, F), g = draw(t, 2 * F), d = draw(t, D),
               first = (size_t)t->offsets[e], n = (size_t)t->counts[e];
        note(&up, ((const float *)t->a[DW_UP].host)[(e * 2 * F + g) * D + d],
             2 * dot(t, DZ, first * 2 * F + g, 2 * F, X, first * D + d, D, n));
        note(&down, ((const float *)t->a[DW_DOWN].host)[(e * D + d) * F + f],
             2 * dot(t, DY, first * D + d, D, H2, first * F + f, F, n));
    }
    double worst = fmax(relative(&up), relative(&down));
    tap_ok(worst < 1e-4, "E %d, D %d, F %d, %s: weights' gradients against FP64: %.1e", t->r.E,
           t->r.D, t->r.F, t->r.routing, worst);
}

static void check_own(struct test *t) {
    struct grouped_rows r = {
        .offsets = t->a[OFFSETS].device, .E = t->r.E, .rows = (int)t->R + t->r.spare};
    size_t wrong = n_wrong_own(t, t->a[DW_UP], (size_t)t->r.D, r, weights_up) +
                   n_wrong_own(t, t->a[DW_DOWN], (size_t)t->r.F, r, weights_down);
    tap_ok(wrong == 0, "E %d, D %d, F %d, %s: own rows of weights' gradients elsewhere: %zu wrong",
           t->r.E, t->r.D, t->r.F, t->r.routing, wrong);
}

/* Rows that pad are zero, those behind the last are as they were. */
static void check_places(struct test *t) {
    const struct {
        int k;
        size_t cols; /* of 2 bytes */
    } by_rows[] = {{Z, 2 * (size_t)t->r.F},
                   {H, (size_t)t->r.F},
                   {Y, (size_t)t->r.D},
                   {DX, (size_t)t->r.D},
                   {DZ, 2 * (size_t)t->r.F},
                   {H2, (size_t)t->r.F},
                   {DP, 2}};
    size_t written = 0, not_zero = 0;
    for (size_t i = 0; i < sizeof by_rows / sizeof *by_rows; i++) {
        const half_t *x = t->a[by_rows[i].k].host;
        size_t cols = by_rows[i].cols;
        for (size_t j = t->R * cols; j < (t->R + (size_t)t->r.spare) * cols; j++)
            written += x[j] != 0xffff;
        for (int e = 0; e < t->r.E; e++)
            for (size_t j = ((size_t)t->offsets[e] + (size_t)t->counts[e]) * cols;
                 j < (size_t)t->offsets[e + 1] * cols; j++)
                not_zero += (x[j] & 0x7fff) != 0;
    }
    tap_ok(written == 0 && not_zero == 0,
           "E %d, D %d, F %d, %s: %zu written behind the rows, %zu not zero in rows that pad",
           t->r.E, t->r.D, t->r.F, t->r.routing, written, not_zero);
}

/* Calls again(t, i) for i < n; how many of the results then have other bits than now. */
static int n_differ(struct test *t, int n, void (*again)(struct test *t, int i)) {
    void *first[N_ARRAYS];
    int differ = 0;
    for (int k = FIRST_RESULT; k <= LAST_RESULT; k++) {
        first[k] = memory_alloc(t->a[k].bytes);
        memcpy(first[k], t->a[k].host, t->a[k].bytes);
    }
    for (int i = 0; i < n; i++) {
        again(t, i);
        for (int k = FIRST_RESULT; k <= LAST_RESULT; k++)
            differ += memcmp(first[k], t->a[k].host, t->a[k].bytes) != 0;
    }
    for (int k = FIRST_RESULT; k <= LAST_RESULT; k++) memory_free(first[k]);
    return differ;
}

static void on_some(struct test *t, int i) {
    static const int multiprocessors[] = {0, 2, 10, 64};
    run(t, multiprocessors[i]);
}

static void check_bits(struct test *t) {
    tap_ok(n_differ(t, 4, on_some) == 0,
           "E %d, D %d, F %d, %s: the same bits again, and on 2, 10, 64 multiprocessors", t->r.E,
           t->r.D, t->r.F, t->r.routing);
}

static void on_all(struct test *t, int i) {
    (void)i;
    run(t, 0);
}

/* 16-bit words of the rows before these that are not as they were. */
static size_t n_written(const struct test *t, int k) {
    size_t n = before(t, k) / sizeof(half_t), written = 0;
    half_t *x = memory_alloc(before(t, k));
    cuda(cudaMemcpy(x, t->stash[k], before(t, k), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++) written += x[i] != 0xffff;
    memory_free(x);
    return written;
}

/* Behind rows that are NaN the results are the same to the bit, and those rows stay. */
static void check_stash(struct test *t) {
    static const int stashed[] = {X, Z, DZ};
    const int32_t bases[] = {BEFORE_X, BEFORE_Z};
    for (int i = 0; i < 3; i++) {
        int k = stashed[i];
        size_t bytes = before(t, k) + t->a[k].bytes;
        cuda(cudaMalloc((void **)&t->stash[k], bytes));
        cuda(cudaMemset(t->stash[k], 0xff, bytes));
    }
    cuda(cudaMemcpy(t->stash[X] + before(t, X), t->a[X].device, t->a[X].bytes,
                    cudaMemcpyDeviceToDevice));
    cuda(cudaMalloc((void **)&t->bases, sizeof bases));
    cuda(cudaMemcpy(t->bases, bases, sizeof bases, cudaMemcpyHostToDevice));
    int differ = n_differ(t, 1, on_all);
    size_t written = n_written(t, X) + n_written(t, Z) + n_written(t, DZ);
    tap_ok(differ == 0 && written == 0,
           "E %d, D %d, F %d, %s: the same bits behind others' rows, of which %zu were written",
           t->r.E, t->r.D, t->r.F, t->r.routing, written);
    for (int i = 0; i < 3; i++) {
        cuda(cudaFree(t->stash[stashed[i]]));
        t->stash[stashed[i]] = NULL;
    }
    cuda(cudaFree(t->bases));
    t->bases = NULL;
}

int main(int argc, char **argv) {
    enum { ROUNDS = sizeof rounds / sizeof *rounds };
    const char *why;
    tap_open(&argc, &argv);
    if (!getenv("TEST_BACKEND")) tap_skip_all("needs a GPU");
    struct grouped *kernels = grouped_open(&why);
    if (!kernels) tap_skip_all(why);
    for (int i = 0; i < ROUNDS; i++) {
        if (!tap_wanted(argc, argv, i + 1, ROUNDS)) continue;
        struct test t = {.r = rounds[i], .kernels = kernels, .seed = 100 * (uint64_t)i};
        open_round(&t);
        for (t.apart = 1; t.apart >= 0; t.apart--) {
            run(&t, 0);
            check_rows(&t);
            check_dp(&t);
            check_weights(&t);
            check_places(&t);
            if (t.apart) continue;
            check_own(&t);
            check_bits(&t);
            check_stash(&t);
        }
        close_round(&t);
    }
    grouped_close(kernels);
    return tap_close();
}
