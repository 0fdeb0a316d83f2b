#include "config.h"
#include "bench/pair.h"
#include "base/memory.h"
#include "base/random.h"
#include <math.h>
#include <string.h>

static size_t bytes_of(const struct sides *s, const struct pair *p, int side) {
    static const size_t sizes[] = {[PAIR_FLOAT] = 4, [PAIR_INT] = 4, [PAIR_DOUBLE] = 8};
    return p->n * (p->type == PAIR_REAL ? s->be[side]->real_bytes : sizes[p->type]);
}

static struct pair new (struct sides *s, enum pair_type type, size_t n) {
    struct pair p = {.n = n, .type = type};
    for (int i = 0; i < 2; i++)
        if (s->be[i]) p.at[i] = s->be[i]->alloc(s->be[i], bytes_of(s, &p, i) + 8);
    return p;
}

void pair_free(struct sides *s, struct pair *p) {
    for (int i = 0; i < 2; i++)
        if (s->be[i]) s->be[i]->release(s->be[i], p->at[i]);
}

/* To the nearest bf16, ties to even. */
static float rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* The first n elements over and over, to the end. */
static void repeat(struct sides *s, struct pair *p, size_t n) {
    struct backend *be = s->be[1];
    size_t all = bytes_of(s, p, 1), have = all / p->n * n;
    for (; have < all; have *= 2)
        be->copy(be, (char *)p->at[1] + have, p->at[1], have < all - have ? have : all - have);
}

struct pair pair_normal(struct sides *s, enum pair_type type, size_t n, float scale) {
    enum { FEW = 1048573 }; /* a prime, so that no two rows are the same */
    struct pair p = new (s, type, n);
    size_t own = s->be[0] || n < FEW ? n : FEW;
    float *x = memory_alloc_array(own + 1, sizeof *x);
    int halves = type == PAIR_REAL && s->be[1]->real_bytes == 2;
    s->seed++;
#pragma omp parallel for
    for (size_t i = 0; i < own; i++) {
        x[i] = scale * random_normal(s->seed, RANDOM_TEST, i);
        if (halves) x[i] = rounded(x[i]);
    }
    for (int i = 0; i < 2; i++)
        if (s->be[i] && type == PAIR_REAL)
            s->be[i]->upload_real(s->be[i], p.at[i], x, own);
        else if (s->be[i])
            s->be[i]->upload(s->be[i], p.at[i], x, own * sizeof *x);
    if (own < n) repeat(s, &p, own);
    memory_free(x);
    return p;
}

struct pair pair_ints(struct sides *s, const int32_t *values, size_t n) {
    struct pair p = new (s, PAIR_INT, n);
    for (int i = 0; i < 2; i++)
        if (s->be[i]) s->be[i]->upload(s->be[i], p.at[i], values, n * sizeof *values);
    return p;
}

void pair_poison(struct sides *s, struct pair *p) {
    for (int i = 0; i < 2; i++) {
        size_t n = bytes_of(s, p, i);
        char *poison = memory_alloc(n + 1);
        memset(poison, 0xff, n);
        s->be[i]->upload(s->be[i], p->at[i], poison, n);
        memory_free(poison);
    }
}

struct pair pair_poisoned(struct sides *s, enum pair_type type, size_t n) {
    struct pair p = new (s, type, n);
    pair_poison(s, &p);
    return p;
}

struct pair pair_zeros(struct sides *s, enum pair_type type, size_t n) {
    return new (s, type, n);
}

double *pair_values(struct sides *s, const struct pair *p, int side) {
    struct backend *be = s->be[side];
    double *x = memory_alloc_array(p->n + 1, sizeof *x);
    if (p->type == PAIR_DOUBLE) {
        be->download(be, x, p->at[side], p->n * sizeof *x);
        return x;
    }
    float *f = memory_alloc_array(p->n + 1, sizeof *f);
    if (p->type == PAIR_REAL)
        be->download_real(be, f, p->at[side], p->n);
    else
        be->download(be, f, p->at[side], p->n * sizeof *f);
    for (size_t i = 0; i < p->n; i++) {
        int32_t whole;
        memcpy(&whole, &f[i], sizeof whole);
        x[i] = p->type == PAIR_INT ? (double)whole : (double)f[i];
    }
    memory_free(f);
    return x;
}

void pair_give(struct sides *s, struct pair *p) {
    if (!s->be[0]) return;
    size_t n = bytes_of(s, p, 0);
    if (p->type == PAIR_REAL) {
        float *x = memory_alloc_array(p->n + 1, sizeof *x);
        s->be[0]->download_real(s->be[0], x, p->at[0], p->n);
        s->be[1]->upload_real(s->be[1], p->at[1], x, p->n);
        s->be[1]->download_real(s->be[1], x, p->at[1], p->n); /* as it was rounded */
        s->be[0]->upload_real(s->be[0], p->at[0], x, p->n);
        memory_free(x);
        return;
    }
    char *x = memory_alloc(n + 1);
    s->be[0]->download(s->be[0], x, p->at[0], n);
    s->be[1]->upload(s->be[1], p->at[1], x, n);
    memory_free(x);
}

double pair_error(struct sides *s, const struct pair *p) {
    double *a = pair_values(s, p, 0), *b = pair_values(s, p, 1), difference = 0, norm = 0;
    for (size_t i = 0; i < p->n; i++) {
        difference += (b[i] - a[i]) * (b[i] - a[i]);
        norm += a[i] * a[i];
    }
    memory_free(a);
    memory_free(b);
    if (difference == 0) return 0;
    return isfinite(difference) && norm > 0 ? sqrt(difference / norm) : INFINITY;
}

size_t pair_differ(struct sides *s, const struct pair *p) {
    double *a = pair_values(s, p, 0), *b = pair_values(s, p, 1);
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) n += a[i] != b[i];
    memory_free(a);
    memory_free(b);
    return n;
}

size_t pair_rows(const struct sides *s, const int32_t *ids, size_t n, int E) {
    size_t *counts = memory_alloc_array((size_t)E, sizeof *counts), rows = 0,
           unit = (size_t)s->be[1]->row_unit;
    for (size_t i = 0; i < n; i++) counts[ids[i]]++;
    for (int e = 0; e < E; e++) rows += (counts[e] + unit - 1) / unit * unit;
    memory_free(counts);
    return rows;
}
