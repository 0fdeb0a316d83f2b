/* What the tests of the products in eight bits work on: operands of a round, results, and all
 * products and passes run on them. */
#ifndef REGULON_TESTS_FP8_BED_H
#define REGULON_TESTS_FP8_BED_H
#include "grouped.h"
#include "grouped_fp8.h"
#include "quantise.h"

enum { SIDE = 128 };

/* Matrices in eight bits: by rows; T: transposed. */
enum { X8, XT8, DY8, DYT8, UP8, UPT8, DOWN8, DOWNT8, H8, HT8, Z8, DZ8, DZT8, N_EIGHT };
/* Arrays, then codes and scales of the matrices, all of which are results. */
enum { X, DY, UP, DOWN, P, OFFSETS, PARTS, Z, Y, DH, DX, DP, DW_UP, DW_DOWN, EIGHT };
enum { FIRST_RESULT = Z, N_ARRAYS = EIGHT + 2 * N_EIGHT };

/* A matrix [lines, width] as it lies: what is summed over runs along its lines, and so do blocks of
 * 128, `high` lines each. The scale of block (i, j) is at i down + j across. */
struct eight {
    int source; /* BF16, on the host; or results: NONE */
    int turned; /* the transpose of it: of each of n matrices */
    size_t n, lines, width, high, down, across;
    size_t lines_used, width_used; /* the rest is behind the last expert's rows */
};
enum { NONE = -1 };

struct test {
    struct round r;
    struct grouped *kernels;
    int32_t *offsets;
    int64_t *counts;
    size_t R, ld; /* rows with those that pad, and with the spare ones */
    struct both a[N_ARRAYS];
    struct eight eight[N_EIGHT];
    char *stash[N_ARRAYS]; /* of X and Z: on the device, rows of others and then these; NULL: they
                              are in the arrays above */
    int low_z;             /* 1: z is kept in eight bits, too, and the backward pass has those */
    struct fp8_matrix stashed_z; /* the same for z in eight bits */
    int32_t *bases;              /* [2] on the device: BEFORE_X, BEFORE_Z */
    uint64_t seed;
};
enum { BEFORE_X = 192, BEFORE_Z = 448 };

static void describe(struct test *t) {
    size_t D = (size_t)t->r.D, F = (size_t)t->r.F, E = (size_t)t->r.E, ld = t->ld, R = t->R;
    const struct eight all[N_EIGHT] = {
        [X8] = {X, 0, 1, ld, D, 1, 1, ld, R, D},
        [XT8] = {X, 1, 1, D, ld, SIDE, 1, D / SIDE, D, R},
        [DY8] = {DY, 0, 1, ld, D, 1, 1, ld, R, D},
        [DYT8] = {DY, 1, 1, D, ld, 1, 1, D, D, R},
        [UP8] = {UP, 0, E, E * 2 * F, D, SIDE, D / SIDE, 1, E * 2 * F, D},
        [UPT8] = {UP, 1, E, E * D, 2 * F, SIDE, 2 * F / SIDE, 1, E * D, 2 * F},
        [DOWN8] = {DOWN, 0, E, E * D, F, SIDE, F / SIDE, 1, E * D, F},
        [DOWNT8] = {DOWN, 1, E, E * F, D, SIDE, D / SIDE, 1, E * F, D},
        [H8] = {NONE, 0, 1, ld, F, 1, 1, ld, R, F},
        [HT8] = {NONE, 1, 1, F, ld, SIDE, 1, F / SIDE, F, R},
        [Z8] = {Z, 0, 1, ld, 2 * F, 1, 1, ld, R, 2 * F},
        [DZ8] = {NONE, 0, 1, ld, 2 * F, 1, 1, ld, R, 2 * F},
        [DZT8] = {NONE, 1, 1, 2 * F, ld, 1, 1, 2 * F, 2 * F, R}};
    memcpy(t->eight, all, sizeof all);
}

static struct fp8_matrix matrix(const struct test *t, int m) {
    return (struct fp8_matrix){t->a[EIGHT + 2 * m].device, t->a[EIGHT + 2 * m + 1].device};
}

static const uint8_t *codes(const struct test *t, int m) {
    return t->a[EIGHT + 2 * m].host;
}

static const float *scales(const struct test *t, int m) {
    return t->a[EIGHT + 2 * m + 1].host;
}

/* Of element (i, j), as it lies. */
static size_t scale_at(const struct eight *q, size_t i, size_t j) {
    return i / q->high * q->down + j / SIDE * q->across;
}

/* Some rows of x: zeros, a value far above the others, and what is too small for its scale. */
static void make_odd_rows(half_t *x, size_t D) {
    for (size_t j = 0; j < SIDE; j++) x[j] = 0;
    x[D + 3] = to_half(100);
    for (size_t j = 0; j < SIDE; j++) x[2 * D + j] = to_half(1e-38f * (float)j);
}

static void open_round(struct test *t) {
    t->R = lay_out_rows(t->r, GROUPED_FP8_ROWS, &t->counts, &t->offsets);
    t->ld = t->R + (size_t)t->r.spare;
    describe(t);
    size_t ld = t->ld, D = (size_t)t->r.D, F = (size_t)t->r.F, E = (size_t)t->r.E, h = 2;
    const size_t bytes[EIGHT] = {[X] = ld * D * h,
                                 [DY] = ld * D * h,
                                 [UP] = E * 2 * F * D * h,
                                 [DOWN] = E * D * F * h,
                                 [P] = ld * 4,
                                 [OFFSETS] = (E + 1) * 4,
                                 [PARTS] = fp8_parts(ld, t->r.F),
                                 [Z] = ld * 2 * F * h,
                                 [Y] = ld * D * h,
                                 [DH] = ld * F * h,
                                 [DX] = ld * D * h,
                                 [DP] = ld * 4,
                                 [DW_UP] = E * 2 * F * D * 4,
                                 [DW_DOWN] = E * D * F * 4};
    for (int k = 0; k < EIGHT; k++) t->a[k] = both_new(bytes[k]);
    for (int m = 0; m < N_EIGHT; m++) {
        const struct eight *q = &t->eight[m];
        t->a[EIGHT + 2 * m] = both_new(q->lines * q->width);
        t->a[EIGHT + 2 * m + 1] = both_new(q->lines * q->width / q->high / SIDE * sizeof(float));
    }
    memset(t->a[X].host, 0xff, bytes[X]); /* rows behind the last expert's are NaN */
    memset(t->a[DY].host, 0xff, bytes[DY]);
    memcpy(t->a[OFFSETS].host, t->offsets, bytes[OFFSETS]);
    both_fill(t->a[X], t->R * D, 1, ++t->seed);
    both_fill(t->a[DY], t->R * D, 1e-3f, ++t->seed);
    both_fill(t->a[UP], E * 2 * F * D, 1 / sqrtf((float)D), ++t->seed);
    both_fill(t->a[DOWN], E * D * F, 1 / sqrtf((float)F), ++t->seed);
    make_odd_rows(t->a[X].host, D);
    zero_pads(t->a[X], t->r, t->counts, t->offsets, D * h);
    zero_pads(t->a[DY], t->r, t->counts, t->offsets, D * h);
    float *p = t->a[P].host;
    for (size_t i = 0; i < ld; i++) p[i] = (float)random_uniform(5, RANDOM_TEST, i);
    for (int k = X; k <= OFFSETS; k++) both_put(t->a[k]);
}

static void close_round(struct test *t) {
    for (int k = 0; k < N_ARRAYS; k++) both_free(t->a[k]);
    memory_free(t->offsets);
    memory_free(t->counts);
}

static void *device(const struct test *t, int k) {
    return t->stash[k] ? t->stash[k] : t->a[k].device;
}

/* Bytes of the rows before those of X or Z in the stash. */
static size_t before(const struct test *t, int k) {
    return (k == X ? (size_t)BEFORE_X * (size_t)t->r.D : (size_t)BEFORE_Z * 2 * (size_t)t->r.F) * 2;
}

static void poison(struct test *t) {
    for (int k = FIRST_RESULT; k < N_ARRAYS; k++)
        cuda(cudaMemset(device(t, k), 0xff, t->a[k].bytes + (t->stash[k] ? before(t, k) : 0)));
}

/* z in eight bits has its scales by column block, each of all rows. */
static void get_stashed_z(struct test *t) {
    size_t row = sizeof(float), rows = t->ld + BEFORE_Z;
    struct fp8_matrix z = matrix(t, Z8);
    cuda(cudaMemcpy(z.codes, t->stashed_z.codes + before(t, Z) / 2, t->a[EIGHT + 2 * Z8].bytes,
                    cudaMemcpyDeviceToDevice));
    cuda(cudaMemcpy2D(z.scales, t->ld * row, t->stashed_z.scales + BEFORE_Z, rows * row,
                      t->ld * row, 2 * (size_t)t->r.F / SIDE, cudaMemcpyDeviceToDevice));
}

static void get_results(struct test *t) {
    if (t->stashed_z.codes) get_stashed_z(t);
    if (t->stash[Z])
        cuda(cudaMemcpy(t->a[Z].device, t->stash[Z] + before(t, Z), t->a[Z].bytes,
                        cudaMemcpyDeviceToDevice));
    cuda(cudaDeviceSynchronize());
    for (int k = FIRST_RESULT; k < N_ARRAYS; k++) both_get(t->a[k]);
}

static const struct fp8_matrix none;

/* Where z is, or with `low` z in eight bits. */
static struct fp8_z z_of(const struct test *t, int low) {
    if (!low) return (struct fp8_z){.bf16 = device(t, Z)};
    return (struct fp8_z){.low = t->stashed_z.codes ? t->stashed_z : matrix(t, Z8)};
}

static void weights_up(struct test *t, struct gradient dw, struct grouped_rows r) {
    grouped_fp8_weights(t->kernels, dw, matrix(t, DZT8), matrix(t, XT8), r, 2 * t->r.F, t->r.D, 0);
}

static void weights_down(struct test *t, struct gradient dw, struct grouped_rows r) {
    grouped_fp8_weights(t->kernels, dw, matrix(t, DYT8), matrix(t, HT8), r, t->r.D, t->r.F, 0);
}

/* All products on so many multiprocessors, results poisoned first; weights' gradients twice, the
 * second time added. x and `down` are rounded either way by itself, dy and `up` both ways at once.
 * Results are then on the host. */
static void run(struct test *t, int multiprocessors) {
    struct grouped_rows alone = {.offsets = t->a[OFFSETS].device,
                                 .E = t->r.E,
                                 .rows = (int)t->ld,
                                 .multiprocessors = multiprocessors},
                        r = alone; /* r: operands of the stash are among them */
    if (t->bases) {
        r.x = (struct grouped_place){t->bases, BEFORE_X + r.rows};
        r.z = (struct grouped_place){t->bases + 1, BEFORE_Z + r.rows};
    }
    struct both *a = t->a;
    struct grouped *g = t->kernels;
    int D = t->r.D, F = t->r.F, E = t->r.E;
    poison(t);
    quantise_weights(matrix(t, UP8), matrix(t, UPT8), a[UP].device, E, 2 * F, D, 0);
    quantise_weights(matrix(t, DOWN8), none, a[DOWN].device, E, D, F, 0);
    quantise_weights(none, matrix(t, DOWNT8), a[DOWN].device, E, D, F, 0);
    quantise_rows(matrix(t, X8), none, 0, device(t, X), r, D, 0);
    for (int low = 0; low <= t->low_z; low++)
        grouped_fp8_up(g, z_of(t, low), matrix(t, H8), matrix(t, X8), matrix(t, UP8), a[P].device,
                       r, D, F, 0);
    grouped_fp8_forward(g, a[Y].device, matrix(t, H8), matrix(t, DOWN8), r, D, F, 0);
    quantise_rows(matrix(t, DY8), matrix(t, DYT8), 0, a[DY].device, alone, D, 0);
    grouped_fp8_forward(g, a[DH].device, matrix(t, DY8), matrix(t, DOWNT8), r, F, D, 0);
    quantise_swiglu(matrix(t, DZ8), matrix(t, DZT8), matrix(t, HT8), a[DP].device, a[PARTS].device,
                    a[DH].device, z_of(t, t->low_z), a[P].device, r, F, 0);
    grouped_fp8_forward(g, a[DX].device, matrix(t, DZ8), matrix(t, UPT8), r, D, 2 * F, 0);
    quantise_rows(none, matrix(t, XT8), /*square=*/1, device(t, X), r, D, 0);
    for (int add = 0; add < 2; add++) {
        weights_up(t, gradient_whole(a[DW_UP].device, add), r);
        weights_down(t, gradient_whole(a[DW_DOWN].device, add), r);
    }
    get_results(t);
}
#endif
