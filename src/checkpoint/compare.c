#include "config.h"
#include "checkpoint/compare.h"
#include "base/die.h"
#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/contents.h"
#include <stdint.h>
#include <string.h>

enum { MOST_PIECES = 4096, SIDES = 2 };

struct comparison {
    struct contents sides[SIDES];
    int64_t piece; /* values read at a time */
    FILE *out;
};

/* A kind of a tensor and the row that comes next; tensor == n_tensors: all have been read. */
struct cursor {
    int tensor;
    enum state_kind kind;
    int64_t row;
};

/* The first tensor that differs, as far as it has been read. */
struct difference {
    int found;
    struct piece of; /* its param and kind */
    int64_t first;   /* element of the whole tensor */
    float values[SIDES];
    int64_t count; /* elements that differ */
};

static noreturn void unreadable(const char *problem) {
    die_user(EXIT_DATA, "%s", problem);
}

/* ---- what there is ---- */

static void open_side(struct contents *c, const char *folder) {
    char *problem = contents_files(c, folder);
    for (int i = 0; i < c->n_files && !problem; i++)
        problem = checksums_verify(folder, &c->files[i]);
    if (!problem) problem = contents_tensors(c);
    if (problem) unreadable(problem);
}

static void print_side(const struct contents *c, FILE *out) {
    fprintf(out, "%s: run %s, step %lld, dp %d x ep %d\n", c->folder, c->header.run_id,
            (long long)c->header.counters.step, c->header.dp_size, c->header.ep_size);
}

/* 1 when both have the same tensors, else 0, and the first that one of them lacks or has in another
 * shape is printed. */
static int same_tensors(const struct comparison *c) {
    const struct contents *a = &c->sides[0], *b = &c->sides[1];
    for (int i = 0; i < a->n_tensors || i < b->n_tensors; i++) {
        const struct contents_tensor *x = i < a->n_tensors ? &a->tensors[i] : NULL,
                                     *y = i < b->n_tensors ? &b->tensors[i] : NULL;
        int order = !x ? 1 : !y ? -1 : strverscmp(x->param.name, y->param.name);
        if (order != 0) {
            fprintf(c->out, "different: %s is in %s only\n", (order < 0 ? x : y)->param.name,
                    (order < 0 ? a : b)->folder);
            return 0;
        }
        if (x->kinds != y->kinds || x->param.n_dims != y->param.n_dims ||
            memcmp(x->param.dims, y->param.dims, sizeof x->param.dims) != 0) {
            fprintf(c->out, "different: %s has another shape\n", x->param.name);
            return 0;
        }
    }
    return 1;
}

/* ---- values ---- */

/* Moves on to the next kind of the tensor, or of the next one, that is there. */
static void settle(const struct contents *c, struct cursor *at) {
    for (;; at->kind++) {
        if (at->tensor == c->n_tensors) return;
        if (at->kind == N_STATES) at->kind = 0, at->tensor++;
        if (at->tensor < c->n_tensors && (c->tensors[at->tensor].kinds >> at->kind & 1)) return;
    }
}

/* The pieces from the cursor on: `most` values or fewer, or one row where that has more; how many.
 */
static int next_pieces(const struct contents *c, int64_t most, struct cursor *at,
                       struct piece *list) {
    int64_t left = most;
    int n = 0;
    for (settle(c, at); left > 0 && n < MOST_PIECES && at->tensor < c->n_tensors; settle(c, at)) {
        const struct param *t = &c->tensors[at->tensor].param;
        int64_t rows = left / t->cols, rest = t->rows - at->row;
        if (rows == 0 && n > 0) break;
        if (rows == 0) rows = 1;
        if (rows > rest) rows = rest;
        list[n++] = (struct piece){.param = t,
                                   .kind = at->kind,
                                   .first_row = at->row,
                                   .rows = rows,
                                   .n = (size_t)(rows * t->cols)};
        left -= rows * t->cols, at->row += rows;
        if (at->row == t->rows) at->row = 0, at->kind++;
    }
    return n;
}

/* Fills pieces[n], and with `bias` the router's bias, from all shards of a side. */
static void read_side(const struct contents *c, struct piece *pieces, int n, float *bias) {
    size_t *covered = memory_alloc_array((size_t)n + 1, sizeof *covered);
    char *problem = NULL;
    for (int d = 0; d < c->header.dp_size && !problem; d++)
        for (int e = 0; e < c->header.ep_size && !problem; e++) {
            char *name = shard_name(d, e), *path = file_join(c->folder, name);
            problem = shard_read(NULL, path, pieces, n, covered, bias,
                                 (size_t)(c->bias_shape[0] * c->bias_shape[1]));
            memory_free(path);
            memory_free(name);
        }
    for (int i = 0; i < n && !problem; i++)
        if (covered[i] != pieces[i].n)
            problem = memory_format("%s: %zu of %zu values of /%s/%s from row %lld", c->folder,
                                    covered[i], pieces[i].n, state_name(pieces[i].kind),
                                    pieces[i].param->name, (long long)pieces[i].first_row);
    if (problem) unreadable(problem);
    memory_free(covered);
}

/* Counts in *d what differs between the sides' data of a piece. */
static void compare_piece(struct difference *d, const struct piece *a, const struct piece *b) {
    if (memcmp(a->data, b->data, a->n * sizeof *a->data) == 0) return;
    for (size_t i = 0; i < a->n; i++) {
        if (memcmp(&a->data[i], &b->data[i], sizeof *a->data) == 0) continue;
        if (d->count++ > 0) continue;
        d->found = 1, d->of = *a;
        d->first = a->first_row * a->param->cols + (int64_t)i;
        d->values[0] = a->data[i], d->values[1] = b->data[i];
    }
}

/* Room for what next_pieces can ask for. */
static size_t most_values(const struct contents *c, int64_t piece) {
    size_t most = (size_t)piece;
    for (int i = 0; i < c->n_tensors; i++)
        if ((size_t)c->tensors[i].param.cols > most) most = (size_t)c->tensors[i].param.cols;
    return most;
}

/* Reads on until a tensor that differs has been read whole, or to the end. */
static struct difference compare_values(const struct comparison *c) {
    struct difference d = {.found = 0};
    struct cursor at = {0, 0, 0};
    struct piece *pieces[SIDES];
    float *data[SIDES];
    size_t room = most_values(&c->sides[0], c->piece);
    int done = 0;
    for (int s = 0; s < SIDES; s++) {
        pieces[s] = memory_alloc_array(MOST_PIECES, sizeof *pieces[s]);
        data[s] = memory_alloc_array(room, sizeof *data[s]);
    }
    for (int n; !done && (n = next_pieces(&c->sides[0], c->piece, &at, pieces[0])) > 0;) {
        memcpy(pieces[1], pieces[0], (size_t)n * sizeof *pieces[0]);
        for (int s = 0; s < SIDES; s++) {
            size_t used = 0;
            for (int i = 0; i < n; i++) pieces[s][i].data = data[s] + used, used += pieces[s][i].n;
            read_side(&c->sides[s], pieces[s], n, NULL);
        }
        for (int i = 0; i < n && !done; i++) {
            done = d.found && (d.of.param != pieces[0][i].param || d.of.kind != pieces[0][i].kind);
            if (!done) compare_piece(&d, &pieces[0][i], &pieces[1][i]);
        }
    }
    for (int s = 0; s < SIDES; s++) memory_free(pieces[s]), memory_free(data[s]);
    return d;
}

/* ---- the router's selection bias ---- */

static struct difference compare_bias(const struct comparison *c, const struct param *t) {
    struct difference d = {.found = 0};
    struct piece whole[SIDES];
    for (int s = 0; s < SIDES; s++) {
        whole[s] = (struct piece){.param = t, .rows = t->rows, .n = t->n};
        whole[s].data = memory_alloc_array(t->n, sizeof *whole[s].data);
        read_side(&c->sides[s], NULL, 0, whole[s].data);
    }
    compare_piece(&d, &whole[0], &whole[1]);
    for (int s = 0; s < SIDES; s++) memory_free(whole[s].data);
    return d;
}

static void print_difference(const struct difference *d, const char *kind, FILE *out) {
    const struct param *t = d->of.param;
    int64_t index[3] = {0, 0, 0}, rest = d->first;
    for (int k = t->n_dims - 1; k >= 0; k--) index[k] = rest % t->dims[k], rest /= t->dims[k];
    fprintf(out, "different: %s%s[", kind, t->name);
    for (int k = 0; k < t->n_dims; k++) fprintf(out, "%s%lld", k ? ", " : "", (long long)index[k]);
    fprintf(out, "] is %.9g and %.9g; %lld of its %zu values differ\n", (double)d->values[0],
            (double)d->values[1], (long long)d->count, t->n);
}

static int compare(struct comparison *c) {
    if (!same_tensors(c)) return 1;
    struct difference d = compare_values(c);
    if (d.found) {
        char *kind = memory_format("/%s/", state_name(d.of.kind));
        print_difference(&d, kind, c->out);
        memory_free(kind);
        return 1;
    }
    const int64_t *shape = c->sides[0].bias_shape;
    struct param bias = {.name = "/router_bias",
                         .n_dims = 2,
                         .dims = {shape[0], shape[1], 0},
                         .rows = shape[0],
                         .cols = shape[1],
                         .n = (size_t)(shape[0] * shape[1])};
    d = compare_bias(c, &bias);
    if (d.found) print_difference(&d, "", c->out);
    return d.found;
}

int compare_checkpoints(const char *a, const char *b, size_t piece_bytes, FILE *out) {
    struct comparison c = {.piece = (int64_t)(piece_bytes / sizeof(float)), .out = out};
    open_side(&c.sides[0], a);
    open_side(&c.sides[1], b);
    for (int s = 0; s < SIDES; s++) print_side(&c.sides[s], out);
    int different = compare(&c);
    if (!different) fprintf(out, "equal\n");
    for (int s = 0; s < SIDES; s++) contents_close(&c.sides[s]);
    return different;
}
