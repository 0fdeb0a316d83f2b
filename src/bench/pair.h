/* Arrays that the CPU backend and the one under test both have, with the same values; for tests and
 * for bench. */
#ifndef REGULON_BENCH_PAIR_H
#define REGULON_BENCH_PAIR_H
#include "backend/backend.h"

/* The CPU backend is [0], the one under test [1]. Where time is measured there is no [0] (NULL),
 * and nothing can be compared. */
struct sides {
    struct backend *be[2];
    uint64_t seed; /* of the last array of random numbers */
};

enum pair_type { PAIR_REAL, PAIR_FLOAT, PAIR_INT, PAIR_DOUBLE };

struct pair {
    void *at[2]; /* in each backend's memory */
    size_t n;
    enum pair_type type;
};

/* Standard normal times scale, as the compute type of the backend under test can hold them; a new
 * seed each call. Without side 0 large arrays repeat themselves. */
struct pair pair_normal(struct sides *s, enum pair_type type, size_t n, float scale);
struct pair pair_ints(struct sides *s, const int32_t *values, size_t n);
struct pair pair_poisoned(struct sides *s, enum pair_type type, size_t n); /* NaN, ints: -1 */
struct pair pair_zeros(struct sides *s, enum pair_type type, size_t n);
void pair_free(struct sides *s, struct pair *p);
void pair_poison(struct sides *s, struct pair *p);

/* What the first has becomes what the second has, where there is a first. */
void pair_give(struct sides *s, struct pair *p);

/* |b - a| / |a|, Frobenius; infinite when something is NaN; 0 for empty ones. pair_differ: ints
 * that are not the same. */
double pair_error(struct sides *s, const struct pair *p);
size_t pair_differ(struct sides *s, const struct pair *p);

/* Rows that moe_dispatch lays out for n (token, choice) pairs with these of E experts, those that
 * pad included. Both sides must have the same row_unit. */
size_t pair_rows(const struct sides *s, const int32_t *ids, size_t n, int E);

/* A copy in host memory, FP64, of side 0 or 1; the caller frees it. */
double *pair_values(struct sides *s, const struct pair *p, int side);

/* Elements of an array [a, b]. */
static inline size_t area(int a, int b) {
    return (size_t)a * (size_t)b;
}
#endif
