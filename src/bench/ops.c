/* Errors first, from small arrays that the CPU backend has too; then times. What is timed finds its
 * data in memory and not in a cache, as in a step, where gigabytes pass between two uses: calls go
 * round over as many copies of the data as make up ROUND bytes. */
#include "config.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench/ops.h"
#include <math.h>
#include <string.h>

enum { MOST_COPIES = 16, REPEATS = 7, MOST_CALLS = 1000 };
#define ROUND 256e6       /* bytes */
#define LONG_ENOUGH 10e-3 /* s of a measurement */
#define SLOW 0.5          /* s of a call: once more is not worth it */

const struct shape_kind shape_kinds[] = {
    {"mixtral",
     {.N = 8192,
      .D = 4096,
      .F = 14336,
      .V = 32000,
      .E = 8,
      .A = 2,
      .H = 32,
      .G = 8,
      .K = 128,
      .document = 4096,
      .side = 8192,
      .copied = 1 << 28},
     {.N = 333,
      .D = 256,
      .F = 320,
      .V = 1000,
      .E = 8,
      .A = 2,
      .H = 8,
      .G = 2,
      .K = 128,
      .document = 150,
      .side = 256,
      .copied = 1000}},
    {"fine",
     {.N = 8192,
      .D = 2048,
      .F = 1024,
      .V = 32000,
      .E = 64,
      .A = 8,
      .H = 16,
      .G = 16,
      .K = 128,
      .document = 4096,
      .side = 8192,
      .copied = 1 << 28},
     {.N = 333,
      .D = 128,
      .F = 64,
      .V = 1000,
      .E = 64,
      .A = 8,
      .H = 4,
      .G = 4,
      .K = 128,
      .document = 150,
      .side = 256,
      .copied = 1000}},
    {"sonic",
     {.N = 32768,
      .D = 4096,
      .F = 2048,
      .V = 32000,
      .E = 64,
      .A = 4,
      .H = 32,
      .G = 8,
      .K = 128,
      .document = 4096,
      .side = 8192,
      .copied = 1 << 28},
     {.N = 333,
      .D = 256,
      .F = 128,
      .V = 1000,
      .E = 64,
      .A = 4,
      .H = 8,
      .G = 2,
      .K = 128,
      .document = 150,
      .side = 256,
      .copied = 1000}},
    {"small",
     {.N = 256,
      .D = 128,
      .F = 256,
      .V = 256,
      .E = 8,
      .A = 2,
      .H = 4,
      .G = 2,
      .K = 32,
      .document = 128,
      .side = 512,
      .copied = 1 << 22},
     {.N = 77,
      .D = 64,
      .F = 48,
      .V = 99,
      .E = 8,
      .A = 2,
      .H = 4,
      .G = 2,
      .K = 32,
      .document = 30,
      .side = 64,
      .copied = 1000}},
};
const size_t n_shape_kinds = sizeof shape_kinds / sizeof *shape_kinds;

/* ---- the data of a call ---- */

static void add(struct data *d, struct pair p, int is_result) {
    d->results |= (unsigned)is_result << d->n;
    d->p[d->n++] = p;
}

/* pair_normal has no doubles, and 0 needs no random numbers. */
static struct pair filled(struct data *d, enum pair_type type, size_t n, float scale) {
    return scale == 0 ? pair_zeros(d->s, type, n) : pair_normal(d->s, type, n, scale);
}

void data_read(struct data *d, enum pair_type type, size_t n, float scale) {
    add(d, filled(d, type, n, scale), 0);
}

void data_change(struct data *d, enum pair_type type, size_t n, float scale) {
    add(d, filled(d, type, n, scale), 1);
}

void data_write(struct data *d, enum pair_type type, size_t n) {
    add(d, d->s->be[0] ? pair_poisoned(d->s, type, n) : pair_zeros(d->s, type, n), 1);
}

void data_ints(struct data *d, const int32_t *values, size_t n) {
    add(d, pair_ints(d->s, values, n), 0);
}

void data_random_ints(struct data *d, size_t n, int below) {
    int32_t *x = memory_alloc_array(n, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (int32_t)(random_bits(1, RANDOM_TEST, i) % (uint64_t)below);
    data_ints(d, x, n);
    memory_free(x);
}

static double data_bytes(const struct data *d) {
    double sum = 0;
    for (int k = 0; k < d->n; k++) {
        static const double bytes[] = {[PAIR_FLOAT] = 4, [PAIR_INT] = 4, [PAIR_DOUBLE] = 8};
        enum pair_type type = d->p[k].type;
        sum +=
            (double)d->p[k].n * (type == PAIR_REAL ? (double)d->s->be[1]->real_bytes : bytes[type]);
    }
    return sum;
}

static void data_free(struct data *d) {
    for (int i = 0; i < 2; i++)
        if (d->s->be[i]) d->s->be[i]->moe_free(d->s->be[i], d->moe[i]);
    for (int k = 0; k < d->n; k++) pair_free(d->s, &d->p[k]);
    memory_free(d->cu_seqlens);
}

/* ---- errors ---- */

static double worst_error(struct sides *s, const struct operation *o, const struct sizes *z) {
    struct data d = {.s = s, .z = *z};
    double worst = 0;
    o->make(&d);
    for (int i = 0; i < 2; i++) o->run(&d, s->be[i], i);
    for (int k = 0; k < d.n; k++) {
        if (!(d.results >> k & 1)) continue;
        double e = pair_error(s, &d.p[k]);
        if (!(e <= worst)) worst = e;
    }
    data_free(&d);
    return worst;
}

/* ---- time ---- */

/* Seconds a call, n calls one after the other. */
static double time_calls(const struct operation *o, struct data *copies, int n_copies, int n) {
    struct backend *be = copies[0].s->be[1];
    double seconds[N_CLOCKS], sum = 0;
    char wait[4];
    be->download(be, wait, copies[0].p[0].at[1], sizeof wait);
    be->clock_read(be, seconds);
    be->clock(be, CLOCK_FORWARD);
    for (int k = 0; k < n; k++) o->run(&copies[k % n_copies], be, 1);
    be->clock(be, CLOCK_OTHER);
    be->download(be, wait, copies[0].p[0].at[1], sizeof wait);
    be->clock_read(be, seconds);
    for (int k = 0; k < N_CLOCKS; k++) sum += k == CLOCK_OTHER ? 0 : seconds[k];
    return sum / n;
}

static double median_time(const struct operation *o, struct data *copies, int n_copies) {
    double s[REPEATS];
    time_calls(o, copies, n_copies, n_copies); /* each copy once; plans are made */
    s[0] = time_calls(o, copies, n_copies, n_copies);
    if (s[0] > SLOW) return s[0];
    double calls = LONG_ENOUGH / s[0];
    int n = calls < n_copies ? n_copies : calls < MOST_CALLS ? (int)calls : MOST_CALLS;
    for (int k = 0; k < REPEATS; k++) s[k] = time_calls(o, copies, n_copies, n);
    return median(s, REPEATS);
}

static double time_operation(struct sides *s, const struct operation *o, const struct sizes *z) {
    struct data copies[MOST_COPIES];
    int n = 0, wanted = 1;
    for (; n < wanted; n++) {
        copies[n] = (struct data){.s = s, .z = *z};
        o->make(&copies[n]);
        if (n > 0) continue;
        double fit = ceil(ROUND / data_bytes(&copies[0]));
        wanted = fit < MOST_COPIES ? (int)fit : MOST_COPIES;
    }
    double seconds = median_time(o, copies, n);
    while (n > 0) data_free(&copies[--n]);
    return seconds;
}

/* ---- the table ---- */

struct work ops_work(const struct sizes *z) {
    return (struct work){.N = z->N,
                         .longest = z->document,
                         .D = z->D,
                         .F = z->F,
                         .E = z->E,
                         .A = z->A,
                         .V = z->V,
                         .attention = {.H = z->H, .G = z->G, .K = z->K},
                         .theta = 10000,
                         .backward = 1};
}

void ops_reserve(struct backend *be, const struct sizes *z) {
    be->reserve(be, ops_work(z));
}

static const struct operation *operation(size_t i) {
    return i < n_ops_dense ? &ops_dense[i] : &ops_experts[i - n_ops_dense];
}

static double *errors_of_all(struct backend *be, const struct sizes *z) {
    struct sides s = {.be = {backend_open("cpu", be->grid, NULL), be}};
    size_t n = n_ops_dense + n_ops_experts;
    double *errors = memory_alloc_array(n, sizeof *errors);
    for (int i = 0; i < 2; i++) ops_reserve(s.be[i], z), s.be[i]->forced = 1;
    s.be[0]->row_unit = be->row_unit, s.be[0]->low_rows = be->low_rows;
    for (size_t i = 0; i < n; i++) errors[i] = worst_error(&s, operation(i), z);
    backend_close(s.be[0]);
    return errors;
}

struct row {
    const struct operation *o;
    double seconds, rate, share, error;
    int wrong;
};

static void print_row(const struct row *r, FILE *csv) {
    const char *unit = r->o->computes ? "TFLOP/s" : "GB/s";
    double rate = r->rate / (r->o->computes ? 1e12 : 1e9);
    printf("%-22s %12.1f %10.*f %-7s %8.3f %9.1e  %s\n", r->o->name, r->seconds * 1e6,
           rate < 10 ? 3 : 1, rate, unit, r->share, r->error, r->wrong ? "wrong" : "");
    fflush(stdout);
    if (csv)
        fprintf(csv, "%s,%.9g,%.9g,%s,%.5f,%.3g,%d\n", r->o->name, r->seconds, rate, unit, r->share,
                r->error, r->wrong);
}

int ops_run(struct backend *be, open_backend *open, void *context, const struct shape_kind *kind,
            FILE *csv) {
    const struct sizes *z = &kind->full;
    double *errors = errors_of_all(be, &kind->cut), ceilings[2],
           tolerance = be->real_bytes == 2 ? 1e-2 : 1e-5;
    int n_wrong = 0;
    backend_close(be);
    be = open(context);
    ops_reserve(be, z);
    struct sides s = {.be = {NULL, be}};
    printf(
        "# backend %s (%s); %s\n# shape %s: N %d, D %d, F %d, V %d, E %d, A %d, H %d, G %d, K %d, "
        "documents of %d tokens\n",
        be->name, be->details, be->engines, kind->name, z->N, z->D, z->F, z->V, z->E, z->A, z->H,
        z->G, z->K, z->document);
    printf("# ceilings: copy and square_matmul (%d); wrong: error above %.0e at cut-down sizes\n",
           z->side, tolerance);
    printf("%-22s %12s %10s %-7s %8s %9s\n", "# operation", "us", "rate", "unit", "ceiling",
           "error");
    if (csv) fprintf(csv, "operation,seconds,rate,unit,ceiling,error,wrong\n");
    for (size_t i = 0; i < n_ops_dense + n_ops_experts; i++) {
        struct row r = {.o = operation(i), .error = errors[i]};
        r.seconds = time_operation(&s, r.o, z);
        r.rate = r.o->cost(z, (double)be->real_bytes) / r.seconds;
        if (i < 2) ceilings[r.o->computes] = r.rate;
        r.share = r.rate / ceilings[r.o->computes];
        r.wrong = !(r.error <= tolerance);
        n_wrong += r.wrong;
        print_row(&r, csv);
    }
    backend_close(be);
    memory_free(errors);
    return n_wrong;
}
