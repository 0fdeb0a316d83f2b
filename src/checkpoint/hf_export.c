#include "config.h"
#include "checkpoint/hf_export.h"
#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/hf_files.h"
#include "checkpoint/hf_pieces.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One file of tensors list[first .. first + n). */
struct out_file {
    char *name; /* in the folder */
    int first, n;
    char *header; /* [data] what it begins with */
    size_t data;  /* where its data begin */
};

struct exporting {
    const char *temporary;
    int made; /* it is ours */
    struct hf_list list;
    struct out_file *files; /* [n_files] */
    int n_files;
};

/* ---- files ---- */

/* Cuts the list into files of at most `most` bytes of data, 0: one file. */
static void plan_files(struct exporting *x, int element_bytes, double most) {
    x->files = memory_alloc_array((size_t)x->list.n, sizeof *x->files);
    double bytes = 0;
    for (int i = 0; i < x->list.n; i++) {
        double more = (double)x->list.tensors[i].n * element_bytes;
        if (i == 0 || (most > 0 && bytes + more > most)) {
            x->files[x->n_files++] = (struct out_file){.first = i};
            bytes = 0;
        }
        x->files[x->n_files - 1].n++;
        bytes += more;
    }
    for (int k = 0; k < x->n_files; k++) {
        struct out_file *f = &x->files[k];
        f->name = x->n_files == 1
                      ? memory_string("model.safetensors")
                      : memory_format("model-%05d-of-%05d.safetensors", k + 1, x->n_files);
        f->header = safetensors_header(x->list.tensors + f->first, f->n, &f->data);
    }
}

/* Makes the files, with headers and room for the data. */
static char *create_files(const struct exporting *x) {
    char *problem = NULL;
    for (int k = 0; k < x->n_files && !problem; k++) {
        const struct out_file *f = &x->files[k];
        const struct safetensor *last = &x->list.tensors[f->first + f->n - 1];
        char *path = file_join(x->temporary, f->name);
        int fd = open(path, O_WRONLY | O_CLOEXEC | O_CREAT | O_TRUNC, 0666);
        if (fd < 0 || !file_write_all(fd, f->header, f->data) ||
            ftruncate(fd, (off_t)(f->data + last->first + last->bytes)) != 0)
            problem = memory_format("%s: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        memory_free(path);
    }
    return problem;
}

static char *write_index(const struct exporting *x) {
    json_t *map = json_object();
    double bytes = 0;
    for (int k = 0; k < x->n_files; k++)
        for (int i = x->files[k].first; i < x->files[k].first + x->files[k].n; i++) {
            json_object_set_new(map, x->list.tensors[i].name, json_string(x->files[k].name));
            bytes += (double)x->list.tensors[i].bytes;
        }
    json_t *root =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)bytes, "weight_map", map);
    char *text = json_dumps(root, JSON_INDENT(2)), *problem = NULL,
         *path = file_join(x->temporary, "model.safetensors.index.json");
    if (!text || !file_write_atomic(path, text, strlen(text)))
        problem = memory_format("%s: %s", path, strerror(errno));
    json_decref(root);
    free(text);
    memory_free(path);
    return problem;
}

/* Rank 0: all but the tensors. */
static char *begin(struct exporting *x, const struct config *c, int half, int64_t step) {
    struct shape s = shape_of(c);
    char *problem = hf_begin_folder(x->temporary, "an export", &x->made);
    if (!problem)
        problem = hf_files_write(x->temporary, c, &s, half ? "bfloat16" : "float32", step);
    if (!problem) problem = create_files(x);
    if (!problem && x->n_files > 1) problem = write_index(x);
    return problem;
}

/* ---- tensors ---- */

/* The upper half of an FP32, to nearest, ties to even; x[n] in place, packed. */
static void to_bf16(float *x, int64_t n) {
    uint16_t *out = (uint16_t *)(void *)x;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        int nan = (bits & 0x7fffffffu) > 0x7f800000u;
        uint16_t word =
            (uint16_t)(nan ? bits >> 16 | 64 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        memcpy(&out[i], &word, sizeof word);
    }
}

/* What the stretches go through. */
struct buffer {
    float *data;          /* [room] */
    int64_t room, n_done; /* stretches so far, of all ranks */
};

/* This rank's part of the stretches of tensor i: number k belongs to rank k mod ranks. */
static char *write_tensor(const struct exporting *x, struct weights *w, const struct grid *g,
                          int half, const struct out_file *f, int fd, int i, struct buffer *b) {
    enum { MOST = 1 << 22 }; /* elements */
    const struct safetensor *t = &x->list.tensors[i];
    const struct hf_part *part = &x->list.parts[i];
    int64_t cols = weights_params(w)->list[part->param].cols, size = half ? 2 : 4,
            most = cols < MOST ? MOST / cols * cols : cols;
    char *problem = NULL;
    if (most > b->room) {
        memory_free(b->data);
        b->data = memory_alloc_array((size_t)most, sizeof *b->data);
        b->room = most;
    }
    for (int64_t at = 0, n; at < t->n && !problem; at += n) {
        n = t->n - at < most ? t->n - at : most;
        if (b->n_done++ % g->n_ranks != g->rank) continue;
        problem = weights_read(w, part->param, part->first + at, n, b->data);
        if (!problem && half) to_bf16(b->data, n);
        int64_t place = (int64_t)f->data + (int64_t)t->first + at * size;
        if (!problem && !file_write_all_at(fd, b->data, (size_t)(n * size), place))
            problem = memory_format("%s/%s: %s", x->temporary, f->name, strerror(errno));
    }
    return problem;
}

/* All files one after the other: one is open at a time. */
static char *write_files(const struct exporting *x, struct weights *w, const struct grid *g,
                         int half) {
    struct buffer b = {.data = NULL};
    char *problem = NULL;
    for (int k = 0; k < x->n_files && !problem; k++) {
        const struct out_file *f = &x->files[k];
        char *path = file_join(x->temporary, f->name);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0) problem = memory_format("%s: %s", path, strerror(errno));
        for (int i = f->first; i < f->first + f->n && !problem; i++)
            problem = write_tensor(x, w, g, half, f, fd, i, &b);
        int bad = fd >= 0 && fsync(fd) != 0;
        if (fd >= 0) bad |= close(fd) != 0;
        if (bad && !problem) problem = memory_format("%s: %s", path, strerror(errno));
        memory_free(path);
    }
    memory_free(b.data);
    return problem;
}

char *hf_export(struct weights *w, const struct grid *g, const struct config *c, const char *folder,
                struct hf_export how) {
    char *temporary = memory_format("%s.tmp", folder), *problem;
    struct exporting x = {.temporary = temporary,
                          .list = hf_list_new(weights_params(w), how.half ? "BF16" : "F32")};
    plan_files(&x, how.half ? 2 : 4, how.file_bytes);
    problem = agree_problem(g, g->rank == 0 ? begin(&x, c, how.half, weights_step(w)) : NULL);
    if (!problem) problem = agree_problem(g, write_files(&x, w, g, how.half));
    if (!problem)
        problem = agree_problem(g, g->rank == 0 && !file_publish(temporary, folder)
                                       ? memory_format("%s: %s", folder, strerror(errno))
                                       : NULL);
    if (problem && x.made) file_remove_folder(temporary);
    for (int k = 0; k < x.n_files; k++)
        memory_free(x.files[k].name), memory_free(x.files[k].header);
    memory_free(x.files);
    hf_list_free(&x.list);
    memory_free(temporary);
    return problem;
}
